"""Slack of a pipeline: passes off the critical path can run at a lower clock, at no cost in time.

Let L(c) be the longest path through pass c, and T the longest of all. If every pass takes T / L(c) times as long, no
path exceeds T: all passes of a path P have L(c) >= |P|, so P takes at most T / |P| times |P|. What slack is left is
given out in the same way until none is.

No pass is slowed beyond the clock of its least energy. A device that is done sooner draws idle power until the step
ends, so with W = static + (busy - static) phi^4 and the time d / phi of a pass, its energy above idle is least at
phi^4 = (static - idle) / (3 (busy - static)).

Idea: Chung et al. 2024, "Perseus: Reducing energy bloat in large model training", SOSP, arXiv 2312.06902, which
optimizes the clocks of profiled passes by graph cuts, and reports that it saves up to 30% of the energy, slack for
stragglers of other pipelines included.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs.power_limit import ARITHMETIC, SHAPE, drawn
from lib_dlhpc.errors import SpecError
from lib_dlhpc.parallel import program
from lib_dlhpc.prediction.step import compute_scale
from lib_dlhpc.program import Call, Program, calls, mixes_of, pass_seconds
from lib_dlhpc.program.calls import FORWARD
from lib_dlhpc.spec.experiment import Experiment

Edges = list[tuple[int, int, float]]  # a pass, one that follows it, and the s between
ROUNDS = 20  # in which slack is given out; what is left halves or more in each
# The clock of least energy, and how much longer arithmetic takes at it: 1.63.
BEST_CLOCK = (SHAPE.static / (3 * (1 - SHAPE.static))) ** 0.25
LONGEST = 1 / BEST_CLOCK


@dataclass(frozen=True)
class Slack:
    """Passes of one pipeline, ordered so that each follows those that it waits for; seconds and joules."""

    passes: tuple[Call, ...]
    seconds: Floats  # of each pass at the highest clock
    stretched: Floats  # of each pass at its own clock
    begins: Floats  # s at which each pass begins at the highest clock
    stretched_begins: Floats  # and at its own
    step: float  # s of all passes, either way
    energy: float  # J of the pipeline's devices in that time, one for each stage
    saved: float  # J less with the passes stretched

    @property
    def saving(self) -> float:
        """Fraction of the devices' energy."""
        return self.saved / self.energy


def slack(experiment: Experiment) -> Slack:
    """Return how long each pass of a scalar experiment may take at no cost in time, and what that saves.

    Messages between stages take their time after a pass; that they share a port is left out, as are the exchange of
    gradients and the update, which follow. Raises SpecError with a power limit, under which clocks are low already.
    """
    if experiment.strategy.power_limit:
        raise SpecError(
            f"strategy.power_limit = {experiment.strategy.power_limit:g} W: slack is defined for devices without a"
            " limit; legal: 0."
        )
    step = program(experiment, compute_scale(experiment))
    found = calls(step.schedule)
    seconds = np.array([_seconds(step, call) for call in found])
    part = _arithmetic(step, found)
    most = seconds * (1 + part * (LONGEST - 1))
    now = seconds
    edges = _edges(step, found)
    end = float(_through(edges, seconds).max())
    for _ in range(ROUNDS):
        now = np.minimum(now * (end / _through(edges, now)), most)
    device = experiment.machine.device
    idle, busy = (float(drawn(device, 0.0, level)) for level in (0.0, ARITHMETIC))
    static = SHAPE.static * (busy - idle)
    ratio = now / np.where(seconds > 0, seconds, 1.0)
    # How much longer the arithmetic takes; the rest of a pass is not slowed.
    longer = 1 + np.where(seconds > 0, ratio - 1, 0.0) / np.where(part > 0, part, 1.0)
    above = static * longer + (busy - idle - static) / longer**3  # W of idle, times longer
    saved = float((seconds * part * (busy - idle - above)).sum())
    energy = idle * end * step.schedule.ranks + float((seconds * _watts(step, found, device)).sum())
    begins, later = (_begins(edges, each) for each in (seconds, now))
    return Slack(found, seconds, now, begins, later, end, energy, saved)


def _seconds(step: Program, call: Call) -> float:
    if not call.computes:
        return 0.0
    return pass_seconds(step.stages[call.place][call.chunk].block(call.phase, call.once))


def _edges(step: Program, passes: tuple[Call, ...]) -> Edges:
    """Return which pass waits for which, and for how many s after its end."""
    sends = [
        step.stages[c.before[0]][c.before[1]].sends.total if c.target >= 0 else 0.0 for c in passes
    ]
    last: dict[int, int] = {}
    edges: Edges = []
    for number, call in enumerate(passes):
        if call.place in last:
            edges.append((last[call.place], number, 0.0))
        if call.source >= 0:
            edges.append((call.source, number, float(sends[call.source])))
        last[call.place] = number
    return edges


def _begins(edges: Edges, seconds: Floats) -> Floats:
    """Return the longest path to the start of each pass, in s."""
    before = np.zeros(len(seconds))
    for one, other, wait in edges:
        before[other] = max(before[other], before[one] + seconds[one] + wait)
    return before


def _through(edges: Edges, seconds: Floats) -> Floats:
    """Return the longest path through each pass, in s."""
    after = np.zeros(len(seconds))  # from its end
    for one, other, wait in reversed(edges):
        after[one] = max(after[one], wait + seconds[other] + after[other])
    return _begins(edges, seconds) + seconds + after


def _arithmetic(step: Program, passes: tuple[Call, ...]) -> Floats:
    """Return the fraction of each pass that a lower clock slows."""
    ahead, back = mixes_of(step)
    return np.array(
        [(ahead if c.phase == FORWARD else back).arithmetic[c.place].min() for c in passes]
    )


def _watts(step: Program, passes: tuple[Call, ...], device: Any) -> Floats:
    """Return the W above idle of each pass."""
    mixes = mixes_of(step)
    of_phase = [
        [float(drawn(device, 0.0, a.min(), m.min())) for a, m in zip(*mix, strict=True)]
        for mix in mixes
    ]
    return np.array([of_phase[c.phase != FORWARD][c.place] for c in passes]) - device.idle_power
