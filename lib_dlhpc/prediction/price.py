"""The price of a program: its longest path without jitter, term by term.

    total = forward + backward + update  +  waiting  +  bubble  +  exposed communication, by kind

Seconds are the mean over the ranks, as in a timeline. Waiting is for the slowest rank. Bubble is the idle time that is
left if messages between stages are free: the path is computed twice, with messages and without. What is idle beyond it
is exposed communication, of the kind that was waited for.
"""

from dataclasses import dataclass, replace

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.costs import stragglers
from lib_dlhpc.program import (
    BoundShares,
    Program,
    RankPath,
    StagePath,
    messages_of,
    mixes_of,
    work_of,
)
from lib_dlhpc.schedules.network import Cost


@dataclass(frozen=True)
class Step:
    """Seconds of a step, mean of the ranks; messages and their exposed part by kind."""

    forward: float
    backward: float  # recomputation included
    recomputation: float
    update: float
    waiting: float
    messages: dict[str, Cost]
    exposed: dict[str, float]
    bubble: float
    mixes: tuple[BoundShares, BoundShares]  # what limits forward, and backward

    @property
    def total(self) -> float:
        """Seconds from the first forward pass to the last update."""
        work = self.forward + self.backward + self.update + self.waiting
        return work + sum(self.exposed.values()) + self.bubble


def price(step: Program, slow: float = 1.0) -> Step:
    """Return the seconds of a step; slow: by how much the slowest rank exceeds the mean in compute time."""
    work = work_of(step)
    messages, within = messages_of(step)
    busy = work.forward + work.backward + work.recomputation + work.update
    waiting = stragglers.wait(float(busy.max()), slow)
    if step.schedule.ranks == 1:
        path, bubble = _path(step, slow), 0.0
        total, exposed = path.finish(), {**within}
        # Also for places in space whose layers take longer than the mean.
        waiting += float(busy.max()) - float(busy.mean())
    else:
        path = _path(step, 1.0)
        free = _path(step, 1.0, free=True)
        idle = (i + free.end - clock for i, clock in zip(free.idle, free.clock, strict=True))
        one = step.shape[1] == 1
        bubble = float(np.mean([stage if one else np.mean(stage) for stage in idle]))
        bubble = max(0.0, bubble)  # the difference of two sums that may be equal
        exposed = {**within, step.between: path.end - free.end}
        total = path.finish() + waiting
        # Stages whose update is short wait for those whose update is long: for their messages in the next step.
        exposed[step.between] += path.after.pop("", 0.0) - float(work.update.mean())
    for kind, seconds in path.late.items():
        exposed[kind] = exposed.get(kind, 0.0) + seconds / step.schedule.ranks
    for kind, seconds in path.after.items():
        exposed[kind] = exposed.get(kind, 0.0) + seconds
    exposed = {kind: float(exposed.get(kind, 0.0)) for kind in step.kinds}
    terms = float(busy.mean()) + bubble + waiting + sum(exposed.values())
    _add_rest(exposed, total - terms, total, within or {step.between: 1.0}, step.between)
    forward, recomputation = float(work.forward.mean()), float(work.recomputation.mean())
    backward, update = float(work.backward.mean()) + recomputation, float(work.update.mean())
    ahead, back = mixes_of(step)
    mixes = _mean(ahead, work.forward), _mean(back, work.backward + work.recomputation)
    return Step(forward, backward, recomputation, update, waiting, messages, exposed, bubble, mixes)


def _add_rest(
    exposed: dict[str, float], rest: float, total: float, slowed: dict[str, float], between: str
) -> None:
    """Add to exposed communication what the terms leave of the total, so that they sum to it."""
    # Exchanges on other streams add this to those within passes, as both use the same links.
    if rest > 1e-12 * total:
        for kind, seconds in slowed.items():
            exposed[kind] += rest * seconds / sum(slowed.values())
    elif rest < 0:  # a last pass that waits for a message is later, and so is all that follows
        exposed[between] = max(0.0, exposed[between] + rest)


def mean_step(first: Step, last: Step, many: int) -> Step:
    """Return the mean of `many` steps, all of which are like the first but for the last, after which ranks average."""

    def mean(of_first: float, of_last: float) -> float:
        return of_first + (of_last - of_first) / many

    def costs(kind: str) -> Cost:
        cost = first.messages.get(kind, Cost(0.0, 0.0, 0.0))
        return Cost(*map(mean, cost, last.messages[kind]))

    return replace(
        last,
        waiting=mean(first.waiting, last.waiting),
        messages={kind: costs(kind) for kind in last.messages},
        exposed={
            kind: mean(first.exposed.get(kind, 0.0), last.exposed[kind]) for kind in last.exposed
        },
    )


def _mean(mix: BoundShares, seconds: Floats) -> BoundShares:
    """Return the mean of all ranks, weighted by the seconds of their passes."""
    total = float(seconds.sum()) or 1.0
    return BoundShares(*(float((fraction * seconds).sum()) / total for fraction in mix))


def _path(step: Program, slow: float, free: bool = False) -> StagePath | RankPath:
    """Return the passes of a step in which all ranks take `slow` times as long to compute; free: messages between
    stages take no time."""
    variants = step.shape[1]
    if variants == 1:
        path: StagePath | RankPath = StagePath(step, float(slow), free=free)
    else:
        each = np.full((1, variants, 1), float(slow))
        path = RankPath(step, [each] * step.schedule.ranks, free=free)
    path.run()
    return path
