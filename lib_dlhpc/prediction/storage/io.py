"""reading(experiment): the rate that input allows, its limit, the bytes that move, the nodes that hold the data.

What a page needs of input, beside predict(): `reading` for rates and words, `volumes` for what a step and
an epoch move, `nodes_needed` for capacity, `needed_bandwidth` for what storage must give.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.costs import compression, low_rank
from lib_dlhpc.costs import storage_reads as costs
from lib_dlhpc.costs.input import listing_time, loading_time
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.costs.wire_format import on_wire
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.explanation import Explanation, source_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import storage_tier
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown

WHY = {
    "metadata servers": "the metadata servers of {tier} cannot handle more stat, open and close operations",
    "storage bandwidth": "{tier} cannot serve more reads or deliver more bytes per second",
    "network": "the NICs of the nodes cannot carry more",
    "readers": "the readers are busy all the time, most of it with {part}",
    "prefetch": "the samples in flight are limited to the batches fetched ahead,"
    " and most of the time of each sample is spent on {part}",
}


@dataclass(frozen=True)
class Reading:
    """The rate that input allows a run. Samples/s of the whole run, and seconds; every value may be an array."""

    experiment: Experiment
    rates: Mapping[str, Any]  # samples/s that each limit allows; infinite: it limits nothing
    reader: Mapping[str, Any]  # s of one reader for a sample, by what it does
    cached: Any  # share of the data set in a node's cache: the hit rate from the second epoch on
    remote: Any  # share of what is read that lies on another node
    listing: Any  # s before the first step in which directories are listed
    loading: Any  # s before that in which the data set is copied into the nodes

    @property
    def rate(self) -> Any:
        """Samples/s that arrive: what the lowest limit allows; infinite for data in memory."""
        lowest: Any = np.inf
        for rate in self.rates.values():
            lowest = np.minimum(lowest, rate)
        return lowest

    @property
    def limit(self) -> Any:
        """Name of the lowest limit, "" if there is none; an array of names where rates are arrays."""
        names = np.array([*self.rates, ""])
        rates = np.broadcast_arrays(*self.rates.values(), np.inf)
        lowest = np.argmin(np.stack(rates), axis=0)
        lowest = np.where(np.isinf(self.rate), len(names) - 1, lowest)
        return str(names[lowest]) if np.ndim(lowest) == 0 else names[lowest]

    @property
    def fetch(self) -> Any:
        """Seconds in which a global batch arrives."""
        return self.experiment.global_batch / self.rate

    @property
    def why(self) -> str:
        """The limit in words (scalar experiments); "" if there is none."""
        if not self.limit:
            return ""
        tier = costs.read_tier(self.experiment)
        part = max(self.reader, key=lambda name: self.reader[name])
        return WHY[self.limit].format(tier=tier.name, part=part)


def reading(experiment: Experiment) -> Reading:
    """Return the rate that input allows a run, limit by limit; fields of the experiment may be arrays.

    The limits are those of lib_dlhpc/costs/storage_reads.py (bottleneck analysis, Denning & Buzen 1978). Input of
    the lowest rate hides behind a step that is no shorter: predict() has what does not as input stall.
    """
    seconds = costs.limits(experiment)
    with np.errstate(divide="ignore"):
        rates = {name: (1.0 / np.asarray(taken, float))[()] for name, taken in seconds.items()}
    tier = bool(experiment.storage.tier)
    return Reading(
        experiment=experiment,
        rates=rates,
        reader=costs.reader_time(experiment) if tier else {},
        cached=costs.cached_share(experiment),
        remote=costs.remote_share(experiment),
        listing=listing_time(experiment),
        loading=loading_time(experiment),
    )


def needed_bandwidth(experiment: Experiment, step: Any) -> Any:
    """Return the stored B/s that all devices together read when a step takes `step` s and never waits for input.

    For a storage system: what it must give for full use of the accelerators (MLPerf Storage).
    """
    return experiment.global_batch * costs.stored_bytes(experiment) / step


def bytes_in_a_node(experiment: Experiment) -> Any:
    """Return the bytes of the data set that a node's local tier keeps; 0 where samples are streamed.

    Staged: all of them. Cooperative: its part of `replication` copies, compressed if they are.
    """
    storage, size = experiment.storage, costs.data_set_bytes(experiment)
    if storage.access == "stage":
        return size
    if storage.access == "cooperative":
        return size * storage.replication / experiment.strategy.nodes
    return 0.0 * size


def nodes_needed(experiment: Experiment, capacity: Any = None) -> Any:
    """Return how many nodes hold the data set together, `replication` copies of it, as it is stored.

    capacity: B in each node; by default that of the local tier, and where that has no end, one node will do.
    FanStore's slides: 455 GB at 60 GB a node take 8. Raises SpecError without a local tier.
    """
    storage = experiment.storage
    if capacity is None:
        if not storage.local:
            raise SpecError("storage.local: none; give the capacity of a node, or name a tier.")
        capacity = storage_tier(experiment.machine, storage.local).capacity
    size = costs.data_set_bytes(experiment) * storage.replication
    return np.maximum(np.ceil(size / capacity), 1.0)


@dataclass(frozen=True)
class Volumes:
    """The bytes and requests of one step; an epoch is `steps` of them. Every value may be an array."""

    samples: Any
    steps: Any  # of an epoch
    operations: Any  # metadata operations
    reads: Any  # read() calls
    stored: Any  # B read from a tier
    remote: Any  # B of these that cross the network between nodes of a cooperative store
    # B that each device sends to exchange gradients; like the weights, independent of the batch.
    gradients: Any
    epoch_gradients: Any  # B a device sends in an epoch


def volumes(experiment: Experiment) -> Volumes:
    """Return what a step reads and sends: input grows with the batch, the exchange of gradients does not.

    In an epoch it is the other way round: every sample is read once at any batch, and gradients are
    exchanged less often the larger it is. Gradients: 2 (p-1)/p n bytes a device, the least an allreduce
    can send (Thakur, Rabenseifner & Gropp 2005), once in local_steps steps.
    """
    strategy, batch = experiment.strategy, experiment.global_batch
    missed = costs.miss_share(experiment) if experiment.storage.tier else 0.0
    stored = batch * missed * costs.stored_bytes(experiment)
    replicas = experiment.devices / strategy.holders
    weights = on_wire(strategy, experiment.model.trained * BYTES[strategy.precision])
    sent = 2 * (replicas - 1) / replicas * weights / strategy.holders / strategy.local_steps
    if experiment.training.low_rank:
        factors = low_rank.sent(experiment.model, int(experiment.training.low_rank))
        elements = factors.left + factors.right + factors.whole
        sent = 2 * (replicas - 1) / replicas * elements * BYTES[strategy.precision]
    elif experiment.compressed:  # pairs are all-gathered
        share = compression.density(experiment.training, inf)
        pairs, whole = compression.sent(experiment.model, share)
        sent = (replicas - 1) * pairs * compression.pair_bytes(strategy.precision)
        sent = sent + 2 * (replicas - 1) / replicas * whole * BYTES[strategy.precision]
    steps = np.ceil(experiment.dataset.trained / batch)
    return Volumes(
        samples=batch,
        steps=steps,
        operations=batch * missed * costs.operations(experiment),
        reads=batch * missed * costs.reads(experiment),
        stored=stored,
        remote=stored * costs.remote_share(experiment),
        gradients=sent,
        epoch_gradients=sent * steps,
    )


FORMULA = (
    "max(0, fetch - step); fetch = global batch / the lowest rate of metadata servers, storage bandwidth,"
    " NICs, readers and prefetched batches"
)
TIER = (
    ("read bandwidth", "bandwidth", "B/s"),
    ("metadata rate", "metadata_rate", "op/s"),
    ("read calls", "read_rate", "op/s"),
    ("latency of an operation", "operation_latency", "s"),
    ("latency of a read", "read_latency", "s"),
    ("bandwidth of one reader", "reader_bandwidth", "B/s"),
)


def explain_input(p: "Breakdown") -> Explanation:
    """Return the explanation of a scalar prediction's input stall, with the rate of every limit."""
    e = p.experiment
    inputs = [("storage tier", e.storage.tier or "none: data is in memory", "given")]
    if e.storage.tier:
        inputs += [*_samples(p), *_tier(p), *_limits(reading(e))]
        inputs.append(("time to fetch a batch", show(float(p.input_time), "s"), "computed"))
    return Explanation(
        "input stall",
        show(float(p.input_stall), "s"),
        FORMULA,
        tuple(inputs),
        "bottleneck analysis (Denning & Buzen 1978); FanStore (Zhang et al. 2018) for metadata operations and"
        " remote reads",
        "Prefetching hides as much as possible, and nothing varies: the simulator adds queueing. Samples are read in"
        " a new random order in each epoch; a cache is empty in the first epoch, and its hit rate is the"
        " cached share in the others, the most that is possible without knowing the order in advance.",
    )


def _samples(p: "Breakdown") -> list[tuple[str, str, str]]:
    e = p.experiment
    found = [
        ("access", f"{e.storage.access}, {e.storage.format}", "given"),
        (
            "stored bytes per sample",
            show(float(costs.stored_bytes(e)), "B"),
            "data set / compression",
        ),
        (
            "metadata operations per sample",
            f"{float(costs.operations(e)):g}",
            "files × operations per file",
        ),
        ("read calls per sample", f"{float(costs.reads(e)):g}", "given"),
    ]
    if e.storage.cache:
        missed = f"{float(costs.miss_share(e)):.1%}"
        found.append(("not in the cache", missed, "1 - cached share × share of later epochs"))
    if e.storage.access == "cooperative":
        found.append(
            ("on other nodes", f"{float(costs.remote_share(e)):.1%}", "1 - copies / nodes")
        )
    return found


def _tier(p: "Breakdown") -> list[tuple[str, str, str]]:
    """Return the parameters of the tier that is read, except those that have no effect."""
    tier = costs.read_tier(p.experiment)
    return [
        (
            name,
            show(getattr(tier, key), unit),
            source_of(p, "machine", f"storage.{tier.name}.{key}"),
        )
        for name, key, unit in TIER
        if 0 < getattr(tier, key) < float("inf")
    ]


def _limits(found: Reading) -> list[tuple[str, str, str]]:
    workers = found.experiment.storage.workers
    lines = [
        (f"a reader's {name}", show(float(seconds), "s"), "computed, per sample")
        for name, seconds in found.reader.items()
        if seconds and workers
    ]
    return lines + [
        (
            f"allowed by {name}",
            f"{format_plain(float(rate))} samples/s",
            "the lowest: THE LIMIT" if name == found.limit else "computed",
        )
        for name, rate in found.rates.items()
        if rate < float("inf")
    ]
