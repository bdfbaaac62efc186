"""Offloading: the bandwidth that it requires, and its exposed time.

With prefetching a pass takes the longer of computation and transfer (traffic: costs/offload.py). Layers move
their weights one by one during the last backward pass, so the traffic of the update overlaps the rest of it too.

Unified memory moves pages on demand: each fault stops the device, and nothing is prefetched. `paged_time` is our
own bound for that, to compare with.
"""

from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from lib_dlhpc.costs.network import Cost
from lib_dlhpc.costs.offload import OffloadLink, OffloadTraffic, offload_link
from lib_dlhpc.spec.experiment import Experiment

# A fault takes 20 to 50 us on a GPU (Zheng et al. 2016, "Towards high performance paged memory for GPUs").
PAGE_FAULT = 30e-6  # s
PAGE = 64 * 1024  # B; 2 MiB at the most


class OffloadCost(NamedTuple):
    """Cost of an exchange, and its exposed seconds."""

    cost: Cost
    exposed: float


NONE = OffloadCost(Cost(0.0, 0.0, 0.0), 0.0)


@dataclass(frozen=True)
class OffloadNeed:
    """The offload traffic of a step on the rank that moves the most."""

    moved: float  # B, both directions
    required: float  # B/s that hides it fully
    there: float  # B/s of the slower direction
    exposed: float  # s
    paged: float  # s with demand paging, see paged_time


def in_a_pass(way: OffloadLink, out: float, back: float, seconds: float) -> OffloadCost:
    """Return the cost of moving in a pass of `seconds`, and its exposed part."""
    if not out and not back:
        return NONE
    takes = way.seconds(out, back)
    return OffloadCost(Cost(way.latency, takes - way.latency, 0.0), max(0.0, takes - seconds))


def with_the_update(
    way: OffloadLink, away: OffloadTraffic, back: float, update: float
) -> OffloadCost:
    """Return the cost of moving in an update of `update` s after a last backward pass of `back` s."""
    rest = max(0.0, back - way.seconds(away.backward_out, away.backward_in))
    return in_a_pass(way, away.update_out, away.update_in, rest + update)


def need(
    experiment: Experiment, away: OffloadTraffic, passes: tuple[float, float], update: float
) -> OffloadNeed:
    """Return required and available bandwidth; passes: s of a forward and a backward pass; update: s."""
    way, many = offload_link(experiment), int(experiment.strategy.microbatches)
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
    return OffloadNeed(moved, required, min(way.out, way.back), late, paged_time(experiment, moved))


def _rate(moved: float, seconds: float) -> float:
    """Return B/s; a stage without work in a pass moves nothing."""
    return moved / seconds if seconds else inf if moved else 0.0


def paged_time(experiment: Experiment, moved: float, page: float = PAGE) -> float:
    """Return the s of moving `moved` bytes by serial page faults, without overlap."""
    way = offload_link(experiment)
    return ceil(moved / page) * PAGE_FAULT + moved / min(way.out, way.back)
