"""Input: how long a batch takes to come, and what has to be done before the first one."""

from typing import Any

import numpy as np

from lib_dlhpc.costs.storage_reads import data_set_bytes, limits, read_tier, serving
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import StorageTier, storage_tier


def input_time(experiment: Experiment) -> Any:
    """Return the seconds in which one global batch comes, all that can be hidden being hidden: the slowest limit's.

    What each limit allows: storage_reads.py.
    """
    slowest: Any = 0.0
    for seconds in limits(experiment).values():
        slowest = np.maximum(slowest, seconds)
    return experiment.global_batch * slowest


def input_stall(fetch: Any, busy: Any, exposed: Any, every: Any = 1) -> Any:
    """Return the s of a step in which devices wait for its batch, the mean of `every` steps.

    fetch: s in which a batch comes; busy: s of a step without exchange; exposed: of exchange, the mean step's. One in
    `every` steps has all of it, which hides input as well.
    """
    late = fetch - busy
    return ((every - 1) * np.maximum(late, 0.0) + np.maximum(late - every * exposed, 0.0)) / every


def reached(experiment: Experiment, bandwidth: Any, nodes: Any) -> Any:
    """Return the B/s that `nodes` nodes reach of a tier's `bandwidth`: a shared tier is behind their NICs."""
    machine = experiment.machine
    if storage_tier(machine, experiment.storage.tier).scope == "node":
        return bandwidth
    link = machine.inter_node
    return np.minimum(bandwidth, nodes * machine.nics * link.bandwidth * link.efficiency)


def start_time(experiment: Experiment) -> Any:
    """Return the seconds before the first step: files are listed, and copied where they are read locally."""
    return listing_time(experiment) + loading_time(experiment)


def listing_time(experiment: Experiment) -> Any:
    """Return the seconds in which every device lists every directory, one after another, with all its names.

    None where an index is in memory: packed files, and a cooperative store.
    """
    storage = experiment.storage
    if not storage.tier or storage.format == "packed" or storage.access == "cooperative":
        return 0.0
    tier, directories = read_tier(experiment), experiment.dataset.directories
    served = experiment.devices * directories / _copies_of(tier, experiment) / tier.metadata_rate
    return np.maximum(served, directories * tier.operation_latency)


def loading_time(experiment: Experiment) -> Any:
    """Return the seconds in which the nodes copy the data set from storage.tier to storage.local.

    "stage": every node all of it; "cooperative": each its part of `replication` copies. The slowest of
    the tier's bandwidth, its metadata servers, the readers of all nodes, and a node's local writes.
    """
    storage, nodes = experiment.storage, experiment.strategy.nodes
    if storage.access == "stream":
        return 0.0
    source = storage_tier(experiment.machine, storage.tier)
    local = storage_tier(experiment.machine, storage.local)
    copies = nodes if storage.access == "stage" else storage.replication
    servers, size = _copies_of(source, experiment), copies * data_set_bytes(experiment)
    files = 0.0 if storage.format == "packed" else copies * experiment.dataset.files
    operations, reads = files * storage.operations_per_file, files * storage.reads_per_file
    waiting = operations * source.operation_latency + reads * source.read_latency
    waiting = waiting + size / source.reader_bandwidth
    asked, served = serving(source, operations, reads, size)
    readers = storage.workers * experiment.devices
    terms = (
        size / (servers * reached(experiment, source.bandwidth, nodes)),
        asked / servers,
        served / servers,
        np.where(np.equal(readers, 0), 0.0, waiting / np.maximum(readers, 1))[()],
        size / nodes / local.write_bandwidth,
    )
    slowest: Any = 0.0
    for seconds in terms:
        slowest = np.maximum(slowest, seconds)
    return slowest


def _copies_of(tier: StorageTier, experiment: Experiment) -> Any:
    return experiment.strategy.nodes if tier.scope == "node" else 1
