"""A coupled workflow in closed form: which side sets the pace, who waits for whom, which placement is best.

Let p be the s in which the simulation makes a batch and c the s in which it is trained on, n batches in all and
a buffer of D. On shared ranks a run lasts n (p + c) and nobody waits for the other side. On separate ranks,
where nothing varies, it lasts exactly

    p + (n - 1) max(p, c) + c,

the training waits p + (n - 1) max(p - c, 0) for samples, and the simulation max((n - 1)(c - p) - D c + g, 0)
for room, g of p being what it takes to give a batch away: the buffer puts a wait off, and no depth removes it.
With empty = "again" the training fills its waits with k more steps on what it has, and takes a batch out when
one of these ends: the last at the first p + (n - 1 + k) c that is not before n p.

Where p and c vary, with a standard deviation s of their difference, how far the training lags behind is a
random walk with drift p - c between two walls that are b = D max(p, c) + 2 * 0.583 s apart, and its pushes on
the walls are the waits of a batch (Harrison 1985, "Brownian motion and stochastic flow systems", chapter 5, for
the two-sided wall; Siegmund 1985, "Sequential analysis", chapter 10, for the 0.583 s by which a walk in steps
overshoots one):

    for samples  d / (1 - exp(-2 d b / s^2)),   for room  d / (exp(2 d b / s^2) - 1),   d = p - c,

both s^2 / (2 b) where p = c: there a deeper buffer helps, in proportion. Where p and c vary by sigma each, s^2
is 2 sigma^2, and each side waits sigma^2 / b. This is the steady state and an
approximation; the start and the end are those of the run in which nothing varies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, exp

from lib_dlhpc.costs.coupled import Side, sides_of
from lib_dlhpc.spec.workflow import Costs, Workflow
from lib_dlhpc.timeline.coupled import TERMS

OVERSHOOT = 0.583
ENOUGH = 0.01  # of a batch's time: a wait that is not worth a deeper buffer


@dataclass(frozen=True)
class CoupledPrediction:
    """What a run lasts and why."""

    placement: str
    simulating: int  # ranks
    training: int
    seconds: float
    produce: float  # s of a batch: p
    consume: float  # c
    repeats: int  # training steps on a batch that was trained on before
    terms: Mapping[str, float]  # s of the mean rank; they add up to `seconds`

    @property
    def slower(self) -> str:
        """The side that sets the pace; empty where both do, in turn."""
        if self.placement == "shared":
            return ""
        return "simulation" if self.produce > self.consume else "training"


def predict_coupled(workflow: Workflow, costs: Costs, ranks: int) -> CoupledPrediction:
    """Return what a workflow takes on so many ranks. Raises SpecError where these are too few."""
    simulation, training = sides_of(workflow, costs, ranks)
    p, c = simulation.paced(costs.jitter), training.paced(costs.jitter)
    n, depth = workflow.batches, workflow.coupling.depth
    repeats = 0
    if workflow.coupling.placement == "shared":
        seconds, samples, room = n * (p + c), 0.0, 0.0
    else:
        spread = costs.jitter * (simulation.compute**2 + training.compute**2) ** 0.5
        starved, _ = waits(p, c, spread, depth)
        cycle = c + starved
        last = p + (n - 1) * cycle
        if workflow.coupling.empty == "again" and cycle > c:
            steps = ceil((last - p) / c - 1e-9)
            repeats, last = steps - (n - 1), p + steps * c
        seconds = last + c
        samples = seconds - (n + repeats) * c
        room = max((n - 1) * (cycle - p) - depth * cycle + simulation.between, 0.0)
    terms = _terms(
        simulation, training, (p, c), (n, n + repeats), (samples, room), (ranks, seconds)
    )
    sizes = simulation.ranks, training.ranks
    return CoupledPrediction(workflow.coupling.placement, *sizes, seconds, p, c, repeats, terms)


def waits(produce: float, consume: float, spread: float, depth: int) -> tuple[float, float]:
    """Return the s that a batch makes (the training wait for samples, the simulation wait for room).

    produce, consume: s of a batch; spread: standard deviation of their difference, s; depth: of the buffer.
    """
    drift = produce - consume
    walls = depth * max(produce, consume) + 2 * OVERSHOOT * spread
    if spread == 0 or abs(2 * drift * walls / spread**2) > 500:
        return max(drift, 0.0), max(-drift, 0.0)
    x = 2 * drift * walls / spread**2
    if abs(x) < 1e-9:
        return spread**2 / (2 * walls), spread**2 / (2 * walls)
    return drift / (1 - exp(-x)), drift / (exp(x) - 1)


def placements(workflow: Workflow, costs: Costs, ranks: int) -> list[CoupledPrediction]:
    """Return every placement on so many ranks, the quickest first; shared before separate where both take as long."""
    ways = [workflow.placed("shared")]
    most = min(ranks - 1, workflow.simulation.grid)
    ways += [workflow.placed("separate", simulating) for simulating in range(1, most + 1)]
    found = [
        predict_coupled(way, costs, ranks)
        for way in ways
        if way.coupling.placement == "separate" or ranks <= workflow.simulation.grid
    ]
    return sorted(found, key=lambda one: one.seconds)


def enough_depth(workflow: Workflow, costs: Costs, ranks: int) -> int:
    """Return the least depth with which variation costs less than a hundredth of the time."""
    simulation, training = sides_of(workflow, costs, ranks)
    p, c = simulation.paced(costs.jitter), training.paced(costs.jitter)
    spread = costs.jitter * (simulation.compute**2 + training.compute**2) ** 0.5
    depth = 1
    while depth < workflow.batches and min(waits(p, c, spread, depth)) > ENOUGH * max(p, c):
        depth += 1
    return depth


def _terms(
    simulation: Side,
    training: Side,
    paced: tuple[float, float],
    batches: tuple[int, int],
    waited: tuple[float, float],
    run: tuple[int, float],
) -> dict[str, float]:
    """Return the s of the mean rank by term."""
    ranks, seconds = run
    exchange = sum(
        side.ranks * many * (pace - side.mean)
        for side, many, pace in zip((simulation, training), batches, paced, strict=True)
    )
    terms = {
        "simulate": simulation.ranks * batches[0] * simulation.mean / ranks,
        "train": training.ranks * batches[1] * training.mean / ranks,
        "exchange": exchange / ranks,
        "wait for samples": training.ranks * waited[0] / ranks,
        "wait for room": simulation.ranks * waited[1] / ranks,
    }
    terms["idle"] = max(seconds - sum(terms.values()), 0.0)
    return {name: terms[name] for name in TERMS}
