"""Input explained: the rate of each limit, the bottleneck, and the time of a reader by operation."""

from lib_dlhpc.costs import reading as costs
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.explanation import Explanation, source_of
from lib_dlhpc.prediction.io import Reading, reading
from lib_dlhpc.spec.units import format_plain
from lib_dlhpc.spec.units import format_quantity as show

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


def explain_input(p: Breakdown) -> Explanation:
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
        "Prefetch hides as much as possible, and nothing varies: the simulator adds queueing. Samples are read in"
        " a new random order in each epoch; a cache is empty in the first, and its hit rate is the cached share in"
        " the others, the most that is possible without knowing the order in advance.",
    )


def _samples(p: Breakdown) -> list[tuple[str, str, str]]:
    e = p.experiment
    found = [
        ("access", f"{e.storage.access}, {e.storage.format}", "given"),
        (
            "stored bytes a sample",
            show(float(costs.stored_bytes(e)), "B"),
            "data set / compression",
        ),
        (
            "metadata operations a sample",
            f"{float(costs.operations(e)):g}",
            "files × operations a file",
        ),
        ("read calls a sample", f"{float(costs.reads(e)):g}", "given"),
    ]
    if e.storage.cache:
        missed = f"{float(costs.miss_share(e)):.1%}"
        found.append(("not in the cache", missed, "1 - cached share × share of later epochs"))
    if e.storage.access == "cooperative":
        found.append(
            ("on other nodes", f"{float(costs.remote_share(e)):.1%}", "1 - copies / nodes")
        )
    return found


def _tier(p: Breakdown) -> list[tuple[str, str, str]]:
    """Return the parameters of the tier that is read, without those that have no effect."""
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
        (f"a reader's {name}", show(float(seconds), "s"), "a sample, computed")
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
