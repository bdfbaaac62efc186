"""Reading: the time of a sample from storage to a device, by limit.

Every limit is the time that one sample occupies a shared resource, in s. The largest one is the
bottleneck: its inverse bounds the throughput. Samples are drawn at random from the whole data set in
every epoch, so each is read from its location.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from lib_dlhpc.costs.network import all_to_all_congestion, last_axis
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import StorageTier, storage_tier

LIMITS = ("metadata servers", "storage bandwidth", "network", "readers", "prefetch")


def limits(experiment: Experiment) -> dict[str, Any]:
    """Return the time of each limit for a sample in s, by the names of LIMITS; 0: no limit.

    "metadata servers": operations over the tier's operations/s; "storage bandwidth": stored bytes over
    the tier's bandwidth, plus read latency of its data servers, plus metadata if the same servers handle it
    (StorageTier.servers); "network": bytes over the NIC bandwidth;
    "readers": the time of one reader over the number of readers; "prefetch": the same with at most the
    prefetched batches in flight (Little's law: rate = number in flight / latency).
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
    """Return the service times of a tier's metadata servers and of its data servers in s.

    size: B. If one server does both ("one"), the second is the sum of both times.
    """
    asked = operations / tier.metadata_rate
    served = reads / tier.read_rate + size / tier.bandwidth
    return asked, served + asked if tier.servers == "one" else served


def reader_time(experiment: Experiment) -> dict[str, Any]:
    """Return the time of a single reader for a sample in s, by activity; means over the run.

    A cached sample is only decompressed and decoded.
    """
    missed = miss_share(experiment)
    waiting = {name: missed * seconds for name, seconds in _waits(experiment).items()}
    waiting["remote reads"] = waiting["remote reads"] * remote_share(experiment)
    return {**waiting, **_arithmetic(experiment)}


def operations(experiment: Experiment) -> Any:
    """Return the metadata operations of a sample read: none if an index is in memory."""
    storage = experiment.storage
    if storage.format == "packed" or storage.access == "cooperative":
        return 0.0 * storage.operations_per_file
    return _files(experiment) * storage.operations_per_file


def reads(experiment: Experiment) -> Any:
    """Return the read() calls of a sample read: one if an index is in memory."""
    storage = experiment.storage
    if storage.format == "packed" or storage.access == "cooperative":
        return 1.0
    return _files(experiment) * storage.reads_per_file


def stored_bytes(experiment: Experiment) -> Any:
    """Return the mean stored bytes of a sample, after compression."""
    return experiment.dataset.sample_bytes / experiment.storage.compression


def data_set_bytes(experiment: Experiment) -> Any:
    """Return the stored bytes of the data set, after compression."""
    return experiment.dataset.bytes / experiment.storage.compression


def cached_share(experiment: Experiment) -> Any:
    """Return the fraction of the data set in a node's cache: its hit rate under random access.

    With a new permutation in every epoch all samples are equally likely to be cached, whatever the eviction
    policy (lib_dlhpc/prediction/storage/caching.py discusses the accuracy).
    """
    return np.minimum(experiment.storage.cache / data_set_bytes(experiment), 1.0)


def miss_share(experiment: Experiment) -> Any:
    """Return the miss rate of a run: 1 in the first epoch."""
    epochs = np.maximum(experiment.run.epochs, 1.0)
    return 1.0 - cached_share(experiment) * (epochs - 1.0) / epochs


def remote_share(experiment: Experiment) -> Any:
    """Return the fraction of reads from another node: with R copies on N nodes, 1 - R/N."""
    storage = experiment.storage
    if storage.access != "cooperative":
        return 0.0 * experiment.strategy.nodes
    return np.maximum(1.0 - storage.replication / experiment.strategy.nodes, 0.0)


def congestion(experiment: Experiment) -> Any:
    """Return the slowdown factor of remote reads, an all-to-all between nodes."""
    if experiment.storage.access != "cooperative":
        return 1.0
    return _first(all_to_all_congestion(experiment.machine, last_axis(experiment.strategy.nodes)))


def read_tier(experiment: Experiment) -> StorageTier:
    """Return the tier that samples are read from in every epoch: the local one if there is a copy."""
    storage = experiment.storage
    name = storage.tier if storage.access == "stream" else storage.local
    return storage_tier(experiment.machine, name)


def _waits(experiment: Experiment) -> dict[str, Any]:
    """Return the wait times of a reader for an uncached sample; remote reads as if all were remote."""
    tier, size, link = (
        read_tier(experiment),
        stored_bytes(experiment),
        experiment.machine.inter_node,
    )
    return {
        "metadata": operations(experiment) * tier.operation_latency,
        "read latency": reads(experiment) * tier.read_latency,
        "transfer": size / tier.reader_bandwidth,
        # The request in one direction, the sample in the other.
        "remote reads": 2 * link.latency + size / (link.bandwidth * link.efficiency),
    }


def _arithmetic(experiment: Experiment) -> dict[str, Any]:
    storage, dataset = experiment.storage, experiment.dataset
    return {"decompression": dataset.sample_bytes / storage.decompress, "decoding": storage.decode}


def _batch_latency(experiment: Experiment) -> Any:
    """Return the time from the request of a replica's batch to its last sample in s.

    Each reader processes samples in sequence; the last sample is assumed to be of the slowest kind.
    """
    strategy, storage = experiment.strategy, experiment.storage
    readers = storage.workers * strategy.replica
    turns = np.where(np.equal(readers, 0), 1.0, np.ceil(strategy.batch / np.maximum(readers, 1)))[
        ()
    ]
    waits = _waits(experiment)
    waits["remote reads"] = waits["remote reads"] * np.greater(remote_share(experiment), 0)
    slowest = sum(waits.values()) * np.greater(miss_share(experiment), 0)
    slowest = slowest + sum(_arithmetic(experiment).values())
    return (turns - 1.0) * sum(reader_time(experiment).values()) + slowest


def _through_network(experiment: Experiment) -> Any:
    """Return the fraction of bytes read through the NICs of a node, times their congestion."""
    if experiment.storage.access == "cooperative":
        return remote_share(experiment) * congestion(experiment)
    return float(read_tier(experiment).scope == "shared")


def _nics(experiment: Experiment) -> Any:
    machine = experiment.machine
    link = machine.inter_node
    return experiment.strategy.nodes * machine.nics * link.bandwidth * link.efficiency


def _servers(experiment: Experiment) -> Any:
    """Return the number of tiers that serve the run: one in each node, or one for all."""
    return experiment.strategy.nodes if read_tier(experiment).scope == "node" else 1


def _files(experiment: Experiment) -> Any:
    return np.minimum(experiment.dataset.files / experiment.dataset.samples, 1.0)


def _over(number: Any, seconds: Callable[[], Any]) -> Any:
    """Return `seconds` over `number`; 0 where `number` is 0 (as many as needed)."""
    if not np.any(number):
        return 0.0
    return np.where(np.equal(number, 0), 0.0, seconds() / np.maximum(number, 1))[()]


def _first(value: Any) -> Any:
    return value[..., 0] if isinstance(value, np.ndarray) and value.ndim else value
