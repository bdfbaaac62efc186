"""The price of a program: its longest path without jitter, term by term.

Seconds are the mean over the ranks, as in a timeline. Bubble is the idle time that is left if messages between stages
are free; what is idle beyond it is exposed communication, of the kind that was waited for.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.program import (
    Block,
    Collective,
    Instruction,
    Move,
    Path,
    Prices,
    Program,
    Swap,
    Update,
)
from lib_dlhpc.schedules.network import Cost

Floats = NDArray[np.float64]


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

    @property
    def total(self) -> float:
        """Seconds from the first forward pass to the last update."""
        work = self.forward + self.backward + self.update + self.waiting
        return work + sum(self.exposed.values()) + self.bubble


def price(step: Program, slow: float = 1.0) -> Step:
    """Return the seconds of a step; slow: by how much the slowest rank exceeds the mean in compute time."""
    work = _work(step)
    messages, within = _messages(step)
    busy = work.forward + work.backward + work.recomputation + work.update
    if step.schedule.ranks == 1:
        path, bubble = _path(step, slow), 0.0
        total, exposed = path.finish(), {**within}
        waiting = slow * float(busy.max()) - float(busy.mean())
    else:
        path, alone = _path(step, 1.0), _path(step, 1.0, free=True)
        idle = (i + alone.end - at for i, at in zip(alone.idle, alone.clock, strict=True))
        bubble = float(np.mean([np.mean(each) for each in idle]))
        exposed = {**within, step.between: path.end - alone.end}
        # Who computes less has its turn later: only the busiest stage is sure to delay the others.
        waiting = (slow - 1) * float(busy.max())
        total = path.finish() + waiting
    for kind, seconds in path.late.items():
        exposed[kind] = exposed.get(kind, 0.0) + seconds / step.schedule.ranks
    for kind, seconds in path.after.items():
        exposed[kind] = exposed.get(kind, 0.0) + seconds
    exposed = {kind: float(exposed.get(kind, 0.0)) for kind in step.kinds}
    terms = float(busy.mean()) + bubble + waiting + sum(exposed.values())
    # What no kind accounts for: stages whose update, or places in space whose layers, take longer than the mean.
    rest = total - terms
    if rest > 1e-12 * total:
        exposed[max(exposed, key=lambda kind: exposed[kind])] += rest
    forward, recomputation = float(work.forward.mean()), float(work.recomputation.mean())
    backward, update = float(work.backward.mean()) + recomputation, float(work.update.mean())
    return Step(forward, backward, recomputation, update, waiting, messages, exposed, bubble)


def _path(step: Program, slow: float, free: bool = False) -> Path:
    """Return the passes of a step in which all ranks take `slow` times as long to compute."""
    variants = step.shape[1]
    one = float(slow) if variants == 1 else np.full((1, variants, 1), float(slow))
    path = Path(step, [one] * step.schedule.ranks, free=free)
    path.run()
    return path


class _Work(NamedTuple):
    """Seconds of computation in a step, (stages, variants) each."""

    forward: Floats
    backward: Floats
    recomputation: Floats
    update: Floats


def _work(step: Program) -> _Work:
    many = step.schedule.microbatches
    each = np.zeros((4, step.schedule.ranks, step.shape[1]))
    for place, stage in enumerate(step.stages):
        for chunk in stage:
            for variant, prices in enumerate(chunk.backward.prices):
                again = prices.forward[chunk.backward.variants[variant].repeated]
                passes = (prices.forward, prices.backward, again)
                each[:3, place, variant] += [many * float(seconds.sum()) for seconds in passes]
        updates = (row[place] for row in step.end)
        each[3, place] = sum(what.seconds for what in updates if isinstance(what, Update))
    return _Work(*each)


def _messages(step: Program) -> tuple[dict[str, Cost], dict[str, float]]:
    """Return all messages of the mean rank, and the seconds of those within passes, which are exposed, by kind."""
    messages = dict.fromkeys(step.kinds, Cost(0.0, 0.0, 0.0))
    within: dict[str, float] = defaultdict(float)
    many, mean = step.schedule.microbatches, 1 / step.schedule.ranks

    def add(what: Instruction | None, prices: Prices, times: float) -> None:
        if isinstance(what, Collective):
            priced = prices.priced(what)
            messages[what.kind] += priced.cost.times(times * mean)
            if not what.stream:
                within[what.kind] += times * mean * priced.seconds
        elif isinstance(what, Move):
            messages[what.kind] += Cost(0.0, what.seconds * times * mean, 0.0)
        elif isinstance(what, Swap):
            messages[what.kind] += what.cost.times(times * mean)

    for place, stage in enumerate(step.stages):
        for chunk in stage:
            passes = ((chunk.forward, many), (chunk.backward, many - 1), (chunk.last, 1))
            for block, times in passes:
                for what, count in _most(block) if times else ():
                    add(what, block.prices[0], times * count)
            for what in chunk.hidden:
                messages[what.kind] += chunk.backward.prices[0].priced(what).cost.times(many * mean)
            messages[step.between] += chunk.sends.times(2 * many * mean)
        for row in step.end:
            add(row[place], stage[0].last.prices[0], 1)
    return messages, within


def _most(block: Block) -> tuple[tuple[Collective | Move, int], ...]:
    """Return the messages of the variant that exchanges longest within a pass."""
    if len(block.variants) == 1:
        return block.variants[0].messages

    def seconds(messages: tuple[tuple[Collective | Move, int], ...]) -> float:
        inside = ((what, n) for what, n in messages if isinstance(what, Collective))
        return sum(n * block.prices[0].priced(what).seconds for what, n in inside)

    return max((each.messages for each in block.variants), key=seconds)
