"""What a step computes and sends in all, wherever it comes to lie."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.bottleneck import BoundShares
from lib_dlhpc.program.fold import Run
from lib_dlhpc.program.instructions import Collective, Instruction, PairAllreduce, Transfer, Update
from lib_dlhpc.program.program import Block, Chunk, Program, Sent
from lib_dlhpc.schedules.network import Cost


class StepWork(NamedTuple):
    """Seconds of computation in a step, (stages, variants) each."""

    forward: Floats
    backward: Floats
    recomputation: Floats
    update: Floats


def work_of(step: Program) -> StepWork:
    """Return the seconds of computation of a step."""
    many = step.schedule.each
    each = np.zeros((4, step.schedule.ranks, step.shape[1]))
    for stage, places in step.distinct:
        for number, chunk in enumerate(stage):
            ahead, back = (many - turns for turns in step.overlaps(places[0], number))
            alone = np.array([[ahead], [back], [back]])
            for variant, seconds in enumerate(chunk.backward.work):
                each[:3, list(places), variant] += alone * seconds[:, None]
            for variant, seconds in enumerate(chunk.overlapped.work if chunk.overlapped else ()):
                each[:3, list(places), variant] += (many - ahead) * seconds[:, None]
    for row, distinct in zip(step.end, step.ends.distinct, strict=True):
        if any(isinstance(what, Update) for what, *_ in distinct):
            each[3] += np.array([[getattr(what, "seconds", 0.0)] for what in row])
    return StepWork(*each)


def mixes_of(step: Program) -> tuple[BoundShares, BoundShares]:
    """Return what limits forward, and backward with recomputation, (stages, variants) each."""
    limited = np.zeros((2, 2, step.schedule.ranks, step.shape[1]))  # pass, limit
    seconds = np.zeros((2, step.schedule.ranks, step.shape[1]))
    for stage, places in step.distinct:
        for block, share in _shares(step, stage, places[0]):
            pairs = zip(block.limited, block.work, strict=True)
            for variant, (limits, (ahead, back, again)) in enumerate(pairs):
                limited[:, :, list(places), variant] += (share[:, None] * limits)[..., None]
                both = share * np.array([ahead, back + again])
                seconds[:, list(places), variant] += both[:, None]
    fraction = limited / np.where(seconds > 0, seconds, 1.0)[:, None]
    return BoundShares(*fraction[0]), BoundShares(*fraction[1])


def _shares(step: Program, stage: Sequence[Chunk], place: int) -> Iterator[tuple[Block, Floats]]:
    """Yield blocks with the passes forward and backward of a stage, each with the part of all passes that it is."""
    many = step.schedule.each
    for number, chunk in enumerate(stage):
        turns = np.array(step.overlaps(place, number))
        yield chunk.backward, (many - turns) / many
        if chunk.overlapped is not None:
            yield chunk.overlapped, np.full(2, turns[0] / many)


def messages_of(step: Program) -> tuple[dict[str, Cost], dict[str, float]]:
    """Return all messages of the mean rank, and the seconds of those within passes, which are exposed, by kind."""
    by_kind = {kind: Sent(kind) for kind in step.kinds}
    many, mean = step.schedule.each, 1 / step.schedule.ranks

    def add(one: Sent, times: float) -> None:
        by_kind[one.kind] = by_kind[one.kind].plus(one, times * mean)

    for stage, places in step.distinct:
        for number, chunk in enumerate(stage):
            for block, times in chunk.passes(many, step.overlaps(places[0], number)):
                for sent in block.messages if times else ():
                    add(sent, len(places) * times)
            for what in chunk.hidden:
                priced = chunk.backward.prices[0].priced(what)
                add(Sent(what.kind, priced.cost), len(places) * many)
    for last, prices, count in chain.from_iterable(step.ends.distinct):
        if isinstance(last, Collective):
            priced = prices.priced(last)
            add(Sent(last.kind, priced.cost, 0.0, 0.0 if last.stream else priced.seconds), count)
        elif isinstance(last, Transfer):
            add(Sent(last.kind, Cost(0.0, last.seconds, 0.0)), count)
        elif isinstance(last, PairAllreduce):
            add(Sent(last.kind, last.cost), count)
    sends = [chunk.sends for stage in step.stages for chunk in stage]
    hops = {id(cost): cost for cost in sends}
    for key, count in Counter(map(id, sends)).items():
        add(Sent(step.between, hops[key]), 2 * count * many)
    within = {kind: sent.within for kind, sent in by_kind.items() if sent.within}
    return {kind: sent.cost for kind, sent in by_kind.items()}, within


def pass_seconds(block: Block) -> float:
    """Return the seconds of a pass with what its ranks exchange within it, if nothing has to be waited for."""
    runs = (run for run in block.folded if isinstance(run, Run))
    return sum(float(np.max(r.head + r.middle + r.tail)) + r.messages for r in runs)


def ranked_exchanges(step: Program) -> int:
    """Return how many collectives of a step ranks leave one by one."""
    many, found = step.schedule.each, 0
    for place, stage in enumerate(step.stages):
        for number, chunk in enumerate(stage):
            for block, times in chunk.passes(many, step.overlaps(place, number)):
                found += times * sum(
                    count for what, count in block.variants[0].messages if _is_ranked(what)
                )
        found += sum(_is_ranked(row[place]) for row in step.end)
    return found


def _is_ranked(what: Instruction | None) -> bool:
    return isinstance(what, Collective) and what.ranked
