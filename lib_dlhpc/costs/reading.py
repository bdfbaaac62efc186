"""Reading: what a sample costs on its way from storage to a device, limit by limit.

Every limit is a time that one sample takes of something that all share, in s. What takes longest is the
bottleneck: no more than its inverse gets through, and everything else waits. Samples are drawn at random
from the whole data set in every epoch, so each is read from wherever it happens to lie.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from lib_dlhpc.costs.network import all_to_all_congestion, last_axis
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import StorageTier, storage_tier

LIMITS = ("metadata servers", "storage bandwidth", "network", "readers", "prefetch")


def limits(experiment: Experiment) -> dict[str, Any]:
    """Return the seconds that each limit takes of a sample, by the names of LIMITS; 0: it limits nothing.

    "metadata servers": operations over what the tier's servers do a second; "storage bandwidth": stored
    bytes over the tier's, and what its data servers take to begin a read, and for the metadata too where
    the same servers do that (StorageTier.servers); "network": over the NICs that they come through;
    "readers": the time of one reader, shared by all of them; "prefetch": the same with no more samples under
    way than fit into the batches fetched ahead (Little's law: a rate is a number under way over the time
    that each takes).
    All zero for data in memory. Bottleneck analysis: Denning & Buzen 1978, section 6.
    """
    if not experiment.storage.tier:
        return dict.fromkeys(LIMITS, 0.0)
    storage, tier = experiment.storage, read_tier(experiment)
    missed, size, servers = miss_share(experiment), stored_bytes(experiment), _servers(experiment)
    asked, served = serving(tier, operations(experiment), reads(experiment), size)
    readers = storage.workers * experiment.devices
    ahead = storage.prefetch * experiment.global_batch
    return {
        "metadata servers": missed * asked / servers,
        "storage bandwidth": missed * served / servers,
        "network": missed * _through_network(experiment) * size / _nics(experiment),
        "readers": _over(readers, lambda: sum(reader_time(experiment).values())),
        "prefetch": _over(ahead, lambda: _batch_latency(experiment)),
    }


def serving(tier: StorageTier, operations: Any, reads: Any, size: Any) -> tuple[Any, Any]:
    """Return the seconds that a tier's metadata servers and its data servers take of what is asked.

    size: B. Where one server does both ("one"), the second holds both times, one after the other.
    """
    asked = operations / tier.metadata_rate
    served = reads / tier.read_rate + size / tier.bandwidth
    return asked, served + asked if tier.servers == "one" else served


def reader_time(experiment: Experiment) -> dict[str, Any]:
    """Return the seconds that one reader alone needs for a sample, by what it does; means over the run.

    A sample that the node keeps in memory only has to be decompressed and decoded.
    """
    missed = miss_share(experiment)
    waiting = {name: missed * seconds for name, seconds in _waits(experiment).items()}
    waiting["remote reads"] = waiting["remote reads"] * remote_share(experiment)
    return {**waiting, **_arithmetic(experiment)}


def operations(experiment: Experiment) -> Any:
    """Return the metadata operations of a sample that is read: none where an index is in memory."""
    storage = experiment.storage
    if storage.format == "packed" or storage.access == "cooperative":
        return 0.0 * storage.operations_per_file
    return _files(experiment) * storage.operations_per_file


def reads(experiment: Experiment) -> Any:
    """Return the read() calls of a sample that is read: one where an index says where it lies."""
    storage = experiment.storage
    if storage.format == "packed" or storage.access == "cooperative":
        return 1.0
    return _files(experiment) * storage.reads_per_file


def stored_bytes(experiment: Experiment) -> Any:
    """Return the mean bytes of a sample as it is stored, compressed or not."""
    return experiment.dataset.sample_bytes / experiment.storage.compression


def data_set_bytes(experiment: Experiment) -> Any:
    """Return the bytes of the whole data set as it is stored, compressed or not."""
    return experiment.dataset.bytes / experiment.storage.compression


def cached_share(experiment: Experiment) -> Any:
    """Return the share of the data set that a node's cache holds: its hit rate under random access.

    With a fresh permutation in every epoch a sample is as likely to be kept as any other, whatever the
    cache drops (lib_dlhpc/prediction/caching.py says how exact that is).
    """
    return np.minimum(experiment.storage.cache / data_set_bytes(experiment), 1.0)


def miss_share(experiment: Experiment) -> Any:
    """Return the share of a run's samples that are not in the cache: all in the first epoch."""
    epochs = np.maximum(experiment.run.epochs, 1.0)
    return 1.0 - cached_share(experiment) * (epochs - 1.0) / epochs


def remote_share(experiment: Experiment) -> Any:
    """Return the share of the samples read that lie on another node: with R copies on N nodes, 1 - R/N."""
    storage = experiment.storage
    if storage.access != "cooperative":
        return 0.0 * experiment.strategy.nodes
    return np.maximum(1.0 - storage.replication / experiment.strategy.nodes, 0.0)


def congestion(experiment: Experiment) -> Any:
    """Return the slow-down of samples on their way between nodes, where everyone reads from everyone."""
    if experiment.storage.access != "cooperative":
        return 1.0
    return _first(all_to_all_congestion(experiment.machine, last_axis(experiment.strategy.nodes)))


def read_tier(experiment: Experiment) -> StorageTier:
    """Return the tier that samples are read from in every epoch: the local one where there is a copy."""
    storage = experiment.storage
    name = storage.tier if storage.access == "stream" else storage.local
    return storage_tier(experiment.machine, name)


def _waits(experiment: Experiment) -> dict[str, Any]:
    """Return what a reader waits for with a sample that is not in memory; remote reads as if all were."""
    tier, size, link = (
        read_tier(experiment),
        stored_bytes(experiment),
        experiment.machine.inter_node,
    )
    return {
        "metadata": operations(experiment) * tier.operation_latency,
        "read latency": reads(experiment) * tier.read_latency,
        "transfer": size / tier.reader_bandwidth,
        # The request one way, the sample the other.
        "remote reads": 2 * link.latency + size / (link.bandwidth * link.efficiency),
    }


def _arithmetic(experiment: Experiment) -> dict[str, Any]:
    storage, dataset = experiment.storage, experiment.dataset
    return {
        "decompression": dataset.sample_bytes / storage.decompress,
        "decoding": storage.decode,
    }


def _batch_latency(experiment: Experiment) -> Any:
    """Return the seconds from the request of one batch of a replica until its last sample is there.

    Each of its readers takes sample after sample; the last one taken is the slowest kind there is.
    """
    strategy, storage = experiment.strategy, experiment.storage
    readers = storage.workers * strategy.replica
    turns = np.where(
        np.equal(readers, 0), 1.0, np.ceil(strategy.batch / np.maximum(readers, 1))
    )[()]  # fmt: skip
    waits = _waits(experiment)
    waits["remote reads"] = waits["remote reads"] * np.greater(remote_share(experiment), 0)
    slowest = sum(waits.values()) * np.greater(miss_share(experiment), 0)
    slowest = slowest + sum(_arithmetic(experiment).values())
    return (turns - 1.0) * sum(reader_time(experiment).values()) + slowest


def _through_network(experiment: Experiment) -> Any:
    """Return the share of the bytes read that come through a node's NICs, times what congests them."""
    if experiment.storage.access == "cooperative":
        return remote_share(experiment) * congestion(experiment)
    return float(read_tier(experiment).scope == "shared")


def _nics(experiment: Experiment) -> Any:
    machine = experiment.machine
    link = machine.inter_node
    return experiment.strategy.nodes * machine.nics * link.bandwidth * link.efficiency


def _servers(experiment: Experiment) -> Any:
    """Return how many copies of the tier serve the run: one in each node, or one for all."""
    return experiment.strategy.nodes if read_tier(experiment).scope == "node" else 1


def _files(experiment: Experiment) -> Any:
    return np.minimum(experiment.dataset.files / experiment.dataset.samples, 1.0)


def _over(number: Any, seconds: Callable[[], Any]) -> Any:
    """Return `seconds` shared by `number`; 0 where `number` is: as many as are needed."""
    if not np.any(number):
        return 0.0
    return np.where(np.equal(number, 0), 0.0, seconds() / np.maximum(number, 1))[()]


def _first(value: Any) -> Any:
    return value[..., 0] if isinstance(value, np.ndarray) and value.ndim else value
