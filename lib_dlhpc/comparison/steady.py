"""The cost of a step in a real run: the median of its steady steps, and its time by cause.

A rank's step runs from the end of its previous update to the end of its own. The first steps of a run and of an epoch
are excluded: caches are cold, memory is being allocated, the network has just been tested and checkpointed. If an
epoch is so short that its first step must count, the checkpoint at the end of the previous epoch is subtracted: a
shortened run ends epochs far more often than the full run, and a prediction counts only checkpoints by the clock.

If other processes compete for the cores, a rank can be ready to run without a core for milliseconds (core wait,
training/core_waits.py). A single rank's step is compared without its core waits. With several ranks, one without a core
delays the others by an unknown time: only the undisturbed steps are compared, in which hardly any rank waited for a
core.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.calibration.step_fit import UNDISTURBED
from lib_dlhpc.launch.energy import Power
from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.kinds import KINDS

Slowdown: TypeAlias = tuple[float, float]  # time over calibrated time: of work, of each call
LEAST = 8  # undisturbed steps that a verdict needs; fewer if a run has fewer
WARM_UP = 3  # steps excluded at the start of a run
ENOUGH = 4  # steps that must remain for others to be excluded
WORK = ("forward", "backward", "update")
OTHER = "other"


@dataclass(frozen=True)
class Steps:
    """Each step of a run: seconds, and seconds by cause, (steps,) each, mean of the ranks."""

    seconds: Floats
    terms: dict[str, Floats]
    epoch: int = 0  # steps of an epoch; 0: one epoch
    slowdowns: tuple[Slowdown, ...] = ()  # slowdown factors before and after the run
    asked: bool = False  # whether probes were requested
    # (ranks, steps) s that ranks waited for a core; already excluded from `seconds` of a single rank; None: unknown
    core_wait: Floats | None = None
    timeline: Timeline | None = None  # of a typical step
    power: Power | None = None  # while it ran

    @property
    def undisturbed(self) -> NDArray[np.bool_]:
        """Which steps count: all of a single rank, and all if core waits are unknown."""
        if self.core_wait is None or len(self.core_wait) == 1:
            return np.ones(len(self.seconds), bool)
        return np.asarray(self.core_wait.sum(axis=0) <= UNDISTURBED * self.seconds)

    @property
    def without_core(self) -> float:
        """Fraction of the ranks' time in which they were ready to run without a core."""
        if self.core_wait is None:
            return 0.0
        lone = float(self.core_wait.sum()) if len(self.core_wait) == 1 else 0.0
        return float(self.core_wait.mean(axis=0).sum() / (self.seconds.sum() + lone))


@dataclass(frozen=True)
class Steady:
    """A steady step: median s, p10 to p90, and s by cause, which sum to the median."""

    step: float
    low: float
    high: float
    terms: dict[str, float]
    steps: int  # that count
    disturbed: int = 0  # excluded steps
    enough: bool = True  # undisturbed steps; if not, all steps count and there is no verdict


def step_ends(timeline: Timeline) -> Floats:
    """Return when each step of each rank ends, (ranks, steps): with its update.

    Raises ValueError for a rank without an update: nothing ends its steps.
    """
    table = timeline.select(timeline.where("compute", "update")).sorted()
    done = np.bincount(table.rank, minlength=table.ranks)
    steps = int(done.min(initial=np.iinfo(np.int64).max))
    if not steps:
        raise ValueError("a rank has no update, so no step ends.")
    return np.stack([table.stop[table.rank == rank][:steps] for rank in range(table.ranks)])


def steps_of(
    timeline: Timeline, together: int = 1, epoch: int = 0, core_wait: Sequence[Sequence[float]] = ()
) -> Steps:
    """Return the steps of a run, of `epoch` steps in an epoch.

    together: steps between two synchronizations (local SGD); they are reported as one, averaged. core_wait: s that
    each rank waited for a core in each step; empty: unknown.

    Raises ValueError for a rank without an update: nothing ends its steps.
    """
    table = timeline.select(timeline.where("compute")).sorted()
    ends = step_ends(table)
    steps = ends.shape[1] // together * together
    if not steps:
        raise ValueError("a rank has no update, so no step ends.")
    ends = ends[:, :steps]
    # The step of a row is that whose update is the first to end no earlier than it starts.
    sums = np.zeros((len(KINDS), table.ranks, steps))
    begin = np.empty(table.ranks)
    for rank in range(table.ranks):
        own = table.rank == rank
        step = np.searchsorted(ends[rank], table.start[own], side="right")
        held = step < steps
        at = table.kind[own][held].astype(np.int64) * steps + step[held]
        length = (table.stop - table.start)[own][held]
        sums[:, rank] = np.bincount(at, length, len(KINDS) * steps).reshape(-1, steps)
        begin[rank] = table.start[own].min()
    lasts = np.diff(ends, axis=1, prepend=begin[:, None])
    if epoch:
        saved = sums[KINDS.index("checkpoint"), :, ::epoch]
        lasts[:, ::epoch] -= saved
        saved[:] = 0.0
    grouped = (*sums.shape[:2], steps // together, together)
    sums, lasts = sums.reshape(grouped).sum(-1), lasts.reshape(grouped[1:]).sum(-1)
    terms = {name: seconds.mean(axis=0) / together for name, seconds in _terms(sums, lasts).items()}
    seconds = lasts.mean(axis=0) / together
    lost = _core_wait(core_wait, table.ranks, steps, together)
    if lost is not None and table.ranks == 1:
        # Every part of a step is equally likely to lose the core.
        kept = np.maximum(1 - lost[0] / seconds, 0.0)
        seconds, terms = seconds * kept, {name: each * kept for name, each in terms.items()}
    return Steps(seconds, terms, epoch // together, core_wait=lost)


def _core_wait(
    of: Sequence[Sequence[float]], ranks: int, steps: int, together: int
) -> Floats | None:
    """Return core waits as (ranks, steps); None if unknown for any step of any rank."""
    if len(of) != ranks or min(map(len, of)) < steps:
        return None
    lost = np.array([each[:steps] for each in of], np.float64)
    return np.asarray(lost.reshape(ranks, -1, together).mean(axis=-1))


def steady(runs: Sequence[Steps]) -> Steady:
    """Return the steady step of one run or of several equal runs."""
    kept = []
    for run in runs:
        at = np.arange(len(run.seconds))
        calm = at >= WARM_UP
        if run.epoch:
            calm &= at % run.epoch > 0
        kept.append(calm if calm.sum() >= ENOUGH else at >= min(1, len(at) - 1))
    clean = [calm & run.undisturbed for run, calm in zip(runs, kept, strict=True)]
    many, left = (sum(int(each.sum()) for each in which) for which in (kept, clean))
    enough = left >= min(LEAST, many)
    kept = clean if enough else kept
    seconds = np.concatenate([run.seconds[calm] for run, calm in zip(runs, kept, strict=True)])
    low, first, median, third, high = np.quantile(seconds, [0.1, 0.25, 0.5, 0.75, 0.9])
    # Medians of the terms do not sum to the median step; means over the middle steps nearly do.
    middle = (seconds >= first) & (seconds <= third)
    terms = {
        name: np.concatenate([run.terms[name][calm] for run, calm in zip(runs, kept, strict=True)])[
            middle
        ].mean()
        for name in runs[0].terms
    }
    scale = median / seconds[middle].mean()
    scaled = {name: float(value * scale) for name, value in terms.items()}
    return Steady(float(median), float(low), float(high), scaled, len(seconds), many - left, enough)


def _terms(sums: Any, lasts: Floats) -> dict[str, Floats]:
    """Return the s of each cause, (ranks, steps), under the names of a prediction, plus the rest."""
    of = {kind: sums[number] for number, kind in enumerate(KINDS)}
    compute = sum(of[kind] for kind in WORK)
    # A pipeline has no wait for the slowest: a stage with less compute starts later.
    behind = np.zeros_like(compute) if of["bubble"].any() else compute.max(axis=0) - compute
    waiting = np.minimum(behind, of["wait"])
    named = {kind: of[kind] for kind in WORK} | {
        "waiting for the slowest": waiting,
        "exposed communication": of["wait"] - waiting,
        "pipeline bubble": of["bubble"],
        "input stall": of["input"],
        "checkpoint": of["checkpoint"],
    }
    return named | {OTHER: np.maximum(lasts - sum(named.values()), 0.0)}
