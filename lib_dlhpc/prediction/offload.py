"""Out of core: how fast the way to what waits outside of the device must be, and what shows of it.

Fetched ahead, a pass takes the longer of computing and moving (costs/offload.py says what moves). Layers move
their weights one by one as the last backward pass goes, so what the update moves has the rest of that pass too.

Unified memory moves pages only when they are missed: each fault stops the device, and nothing is fetched
ahead. `paged_time` is our own bound for that, to compare with.
"""

from dataclasses import dataclass
from math import ceil, inf

from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.offload import Away, Way, way_out
from lib_dlhpc.prediction.sharding import NONE, Exchange
from lib_dlhpc.spec.experiment import Experiment

# A fault takes 20 to 50 us on a GPU (Zheng et al. 2016, "Towards high performance paged memory for GPUs").
PAGE_FAULT = 30e-6  # s
PAGE = 64 * 1024  # B; 2 MiB at the most


@dataclass(frozen=True)
class Need:
    """What the offloading of the rank that moves most asks for, in a step."""

    moved: float  # B, both directions together
    required: float  # B/s at which nothing of it would show
    there: float  # B/s of the slower direction
    exposed: float  # s
    paged: float  # s if pages came one by one as they are missed, see paged_time


def in_a_pass(way: Way, out: float, back: float, seconds: float) -> Exchange:
    """Return what moving takes in a pass of `seconds`, and how much longer than the pass."""
    if not out and not back:
        return NONE
    takes = way.seconds(out, back)
    return Exchange(Cost(way.latency, takes - way.latency, 0.0), max(0.0, takes - seconds))


def with_the_update(way: Way, away: Away, back: float, update: float) -> Exchange:
    """Return what moving takes in an update of `update` s after a last backward pass of `back` s, and what shows."""
    rest = max(0.0, back - way.seconds(away.backward_out, away.backward_in))
    return in_a_pass(way, away.update_out, away.update_in, rest + update)


def need(experiment: Experiment, away: Away, passes: tuple[float, float], update: float) -> Need:
    """Return what would hide all of it, and what there is; s of a forward and a backward pass, and the update."""
    way, many = way_out(experiment), int(experiment.strategy.microbatches)
    required = late = 0.0
    for out, back, seconds in (
        (away.forward_out, away.forward_in, passes[0]),
        (away.backward_out, away.backward_in, passes[1]),
    ):
        required = max(required, _rate(max(out, back), seconds))
        late += many * in_a_pass(way, out, back, seconds).exposed
    if away.update_out or away.update_in:
        last = max(away.backward_out, away.backward_in) + max(away.update_out, away.update_in)
        required = max(required, _rate(last, passes[1] + update))
        late += with_the_update(way, away, passes[1], update).exposed
    moved = away.moved(many)
    return Need(moved, required, min(way.out, way.back), late, paged_time(experiment, moved))


def _rate(moved: float, seconds: float) -> float:
    """Return B/s; a stage may do nothing in a pass, and then nothing of it moves."""
    return moved / seconds if seconds else inf if moved else 0.0


def paged_time(experiment: Experiment, moved: float, page: float = PAGE) -> float:
    """Return the s of moving `moved` bytes by page faults, one after another, none of it hidden."""
    way = way_out(experiment)
    return ceil(moved / page) * PAGE_FAULT + moved / min(way.out, way.back)
