"""A coupled workflow in closed form: the bottleneck, the wait states, the best placement.

The simulation produces a batch in p s, and training consumes it in c s; there are n batches and a buffer
of depth D. On shared ranks a run takes n (p + c), and neither side waits. On separate ranks,
without variation, it takes exactly

    p + (n - 1) max(p, c) + c,

training waits p + (n - 1) max(p - c, 0) for samples, and the simulation max((n - 1)(c - p) - D c + g, 0)
for a free buffer slot, where g of p is the time to send a batch: the buffer delays a wait, no depth removes it.
With empty = "again" training fills its waits with k more steps on the batches it has, and takes a new batch when
one of these ends: the last at the first p + (n - 1 + k) c that is not before n p.

Where p and c vary, with a standard deviation s of their difference, the lag of training is a random walk
with drift p - c between two reflecting barriers, b = D max(p, c) + 2 * 0.583 s apart, and the reflections
are the waits of a batch (Harrison 1985, "Brownian motion and stochastic flow systems", chapter 5, for
the two-sided barrier; Siegmund 1985, "Sequential analysis", chapter 10, for the 0.583 s by which a discrete
walk overshoots one):

    for samples  d / (1 - exp(-2 d b / s^2)),   for room  d / (exp(2 d b / s^2) - 1),   d = p - c,

both s^2 / (2 b) where p = c: there a wait is inversely proportional to the depth. Where p and c vary by sigma
each, s^2 is 2 sigma^2, and each side waits sigma^2 / b. This approximates the steady state;
start and end are those of a run without variation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, exp

from lib_dlhpc.costs.coupled import Side, sides_of
from lib_dlhpc.spec.workflow import Costs, Workflow
from lib_dlhpc.timeline.coupled import TERMS

OVERSHOOT = 0.583
ENOUGH = 0.01  # of the time of a batch: a shorter wait does not justify a deeper buffer


@dataclass(frozen=True)
class CoupledPrediction:
    """Duration of a run, and its terms."""

    placement: str
    simulating: int  # ranks
    training: int
    seconds: float
    produce: float  # s of a batch: p
    consume: float  # c
    repeats: int  # training steps on a batch that was used before
    terms: Mapping[str, float]  # s of the mean rank; their sum is `seconds`

    @property
    def slower(self) -> str:
        """The side that is the bottleneck; empty on shared ranks, where the two take turns."""
        if self.placement == "shared":
            return ""
        return "simulation" if self.produce > self.consume else "training"


def predict_coupled(workflow: Workflow, costs: Costs, ranks: int) -> CoupledPrediction:
    """Return the prediction of a workflow on `ranks` ranks. Raises SpecError where these are too few."""
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
    """Return the s per batch that (training waits for samples, the simulation waits for a buffer slot).

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
    """Return every placement on `ranks` ranks, the fastest first; shared before separate at equal time."""
    candidates = [workflow.placed("shared")]
    most = min(ranks - 1, workflow.simulation.grid)
    candidates += [workflow.placed("separate", simulating) for simulating in range(1, most + 1)]
    found = [
        predict_coupled(candidate, costs, ranks)
        for candidate in candidates
        if candidate.coupling.placement == "separate" or ranks <= workflow.simulation.grid
    ]
    return sorted(found, key=lambda one: one.seconds)


def enough_depth(workflow: Workflow, costs: Costs, ranks: int) -> int:
    """Return the smallest depth at which variation costs less than 1% of the time."""
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
    periods: tuple[float, float],
    batches: tuple[int, int],
    waited: tuple[float, float],
    run: tuple[int, float],
) -> dict[str, float]:
    """Return the s of the mean rank by term."""
    ranks, seconds = run
    exchange = sum(
        side.ranks * count * (period - side.mean)
        for side, count, period in zip((simulation, training), batches, periods, strict=True)
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
