"""What a step of a real run costs: the median of its steady steps, and where its time goes.

A step of a rank goes from the end of its update before to the end of its own. The first steps of a run and
of an epoch are left out: caches are cold, memory is asked for, the network has just been tested and saved.
Where an epoch has so few steps that its first must count, the saving at the end of the one before is no part of it:
a run cut short ends an epoch far more often than the whole one, and a prediction counts only saves by the clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.timeline import Timeline
from lib_dlhpc.timeline.table import KINDS

Floats: TypeAlias = NDArray[np.float64]
Pace: TypeAlias = tuple[float, float]  # s over what the calibration says: of work, and of each call
WARM_UP = 3  # steps at the start of a run that are left out
ENOUGH = 4  # steps that must be left for others to be left out
WORK = ("forward", "backward", "update")
OTHER = "other"


@dataclass(frozen=True)
class Steps:
    """Each step of a run: seconds, and seconds by cause, (steps,) each, mean of the ranks."""

    seconds: Floats
    terms: dict[str, Floats]
    epoch: int = 0  # how many make an epoch; 0: there is one epoch
    paces: tuple[Pace, ...] = ()  # that the machine had beside it


@dataclass(frozen=True)
class Steady:
    """A steady step: its median s, from p10 to p90, and its s by cause, which add up to the median."""

    step: float
    low: float
    high: float
    terms: dict[str, float]
    steps: int  # that were looked at


def steps_of(timeline: Timeline, together: int = 1, epoch: int = 0) -> Steps:
    """Return the steps of a run, of `epoch` steps in an epoch.

    together: as many as ranks take between two exchanges; they are told as one, by its share of them.

    Raises ValueError where a rank has no update: there is nothing that ends a step.
    """
    table = timeline.select(timeline.where("compute")).sorted()
    update = table.where("", "update")
    done = np.bincount(table.rank[update], minlength=table.ranks)
    steps = int(done.min(initial=np.iinfo(np.int64).max)) // together * together
    if not steps:
        raise ValueError("a rank has no update, and so no step that ends.")
    ends = np.stack(
        [table.stop[update & (table.rank == rank)][:steps] for rank in range(table.ranks)]
    )
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
    return Steps(lasts.mean(axis=0) / together, terms, epoch // together)


def steady(runs: Sequence[Steps]) -> Steady:
    """Return the steady step of one run or several of the same."""
    kept = []
    for run in runs:
        at = np.arange(len(run.seconds))
        calm = at >= WARM_UP
        if run.epoch:
            calm &= at % run.epoch > 0
        kept.append(calm if calm.sum() >= ENOUGH else at >= min(1, len(at) - 1))
    seconds = np.concatenate([run.seconds[calm] for run, calm in zip(runs, kept, strict=True)])
    low, first, median, third, high = np.quantile(seconds, [0.1, 0.25, 0.5, 0.75, 0.9])
    # A median of each term would not add up; the steps in the middle do, but for a little.
    middle = (seconds >= first) & (seconds <= third)
    terms = {
        name: np.concatenate([run.terms[name][calm] for run, calm in zip(runs, kept, strict=True)])[
            middle
        ].mean()
        for name in runs[0].terms
    }
    scale = median / seconds[middle].mean()
    scaled = {name: float(value * scale) for name, value in terms.items()}
    return Steady(float(median), float(low), float(high), scaled, len(seconds))


def _terms(sums: Any, lasts: Floats) -> dict[str, Floats]:
    """Return the s of each cause, (ranks, steps), under the names of a prediction, and what is left."""
    of = {kind: sums[number] for number, kind in enumerate(KINDS)}
    compute = sum(of[kind] for kind in WORK)
    # In a pipeline nobody waits for the slowest: who computes less has its turn later.
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
