"""A checkpoint on striped files: one shared file, a file per rank, or one file through aggregators."""

from functools import lru_cache
from typing import Annotated, NamedTuple

from lib_dlhpc.explore.blocks.bench import Slider, View, amount, on_bench
from lib_dlhpc.explore.io_bottleneck.charts import writes_state
from lib_dlhpc.explore.io_bottleneck.limits import Setting as Hours
from lib_dlhpc.explore.io_bottleneck.limits import experiment
from lib_dlhpc.prediction.storage.striping import Targets, file_per_process, shared_file
from lib_dlhpc.spec.units import format_quantity as show

CHECKPOINT = 1e12  # B
COUNT = 16  # targets that share the file system's bandwidth: illustrative
STRIPE = 4 * 2**20  # B of a stripe, Lustre's default
WAYS = ("one shared file", "a file per rank", "aggregators")


class Setting(NamedTuple):
    """A checkpoint and how it is written. transfer: B of a request of a rank."""

    stripe_count: Annotated[
        int, Slider("Stripe count", "Targets that a shared file uses", (1, 2, 4, 8, 16))
    ] = 1
    ranks: Annotated[int, Slider("Ranks", "All write their part", (8, 40, 64, 256, 1024))] = 256
    transfer: Annotated[
        float,
        Slider("A request", "Of a rank that writes", (4e3, 16e3, 64e3, 1e6, 4e6), amount("B")),
    ] = 1e6
    aggregators: Annotated[
        int, Slider("Aggregators", "Ranks that write for all", (1, 4, 16, 32, 64))
    ] = 16


@on_bench(Setting(), "io_writes", fine="All targets are busy.")
def the_checkpoint(setting: Setting) -> View:
    """Look for which bar is longest, and whether the targets or the ranks limit it."""
    times, limits = seconds(setting), limits_of(setting)
    own = targets().rank_rate(setting.transfer)
    rate, few = show(own, "B/s"), collectors(setting)
    whole = few * targets().rank_rate(STRIPE)
    capped = " (no more ranks)" if few < setting.aggregators else ""
    shared, used = WAYS[0], f"{setting.stripe_count} of {COUNT} targets"
    if limits[shared] == "ranks":
        wall = f"The ranks limit the shared file, not its targets ({used})."
    else:
        idle = setting.stripe_count < COUNT
        wall = f"The shared file uses {used}: the others are idle." if idle else ""
    return View(
        f"<b>{show(CHECKPOINT, 'B')} takes {show(times[shared], 's')} into one file over {used}</b>, and"
        f" {show(times[WAYS[1]], 's')} into {setting.ranks:,} files. A rank can write requests of"
        f" {show(setting.transfer, 'B')} at {rate}, all together {show(setting.ranks * own, 'B/s')};"
        f" aggregators write whole stripes, all {few}{capped} at {show(whole, 'B/s')}.",
        wall,
        {"io_writes": writes_state(times, limits)},
    )


@lru_cache(maxsize=1)
def targets() -> Targets:
    """Return the targets of the slides' file system."""
    tier = experiment(Hours()).machine.storage["lustre"]
    each = float(tier.write_bandwidth) / COUNT
    return Targets(COUNT, each, float(tier.read_latency), float(tier.reader_bandwidth))


def collectors(setting: Setting) -> int:
    """Return how many aggregators there are: no more than ranks."""
    return min(setting.aggregators, setting.ranks)


def seconds(setting: Setting) -> dict[str, float]:
    """Return the seconds of a checkpoint, by way; files per rank have stripe count 1."""
    on, count, ranks, transfer = targets(), setting.stripe_count, setting.ranks, setting.transfer
    times = (
        shared_file(CHECKPOINT, on, count, ranks, transfer),
        file_per_process(CHECKPOINT, on, 1, ranks, transfer),
        shared_file(CHECKPOINT, on, count, collectors(setting), STRIPE),
    )
    return dict(zip(WAYS, times, strict=True))


def limits_of(setting: Setting) -> dict[str, str]:
    """Return in words what limits each way: targets, ranks, or aggregators."""
    on, times = targets(), seconds(setting)
    ranks = CHECKPOINT / (setting.ranks * on.rank_rate(setting.transfer))
    few = CHECKPOINT / (collectors(setting) * on.rank_rate(STRIPE))
    by_ranks = dict(zip(WAYS, (ranks, ranks, few), strict=True))
    writers = dict(zip(WAYS, ("ranks", "ranks", "aggregators"), strict=True))
    return {
        way: writers[way] if by_ranks[way] >= times[way] * (1 - 1e-9) else "targets" for way in WAYS
    }


def shared_rate(setting: Setting) -> float:
    """Return the B/s of the shared file."""
    return CHECKPOINT / seconds(setting)[WAYS[0]]
