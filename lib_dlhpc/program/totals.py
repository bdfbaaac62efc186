"""What a step computes and sends in all, wherever it comes to lie."""

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.program.fold import Run
from lib_dlhpc.program.instructions import Collective, Instruction, Move, Swap, Update
from lib_dlhpc.program.program import Block, Chunk, Floats, Prices, Program
from lib_dlhpc.schedules.network import Cost


class Work(NamedTuple):
    """Seconds of computation in a step, (stages, variants) each."""

    forward: Floats
    backward: Floats
    recomputation: Floats
    update: Floats


def work_of(step: Program) -> Work:
    """Return the seconds of computation of a step."""
    many = step.schedule.microbatches
    each = np.zeros((4, step.schedule.ranks, step.shape[1]))
    for stage, places in alike(step):
        for chunk in stage:
            for variant, prices in enumerate(chunk.backward.prices):
                again = prices.forward[chunk.backward.variants[variant].repeated]
                passes = (prices.forward, prices.backward, again)
                seconds = np.array([[many * float(one.sum())] for one in passes])
                each[:3, places, variant] += seconds
    for place in range(step.schedule.ranks):
        updates = (row[place] for row in step.end)
        each[3, place] = sum(what.seconds for what in updates if isinstance(what, Update))
    return Work(*each)


def alike(step: Program) -> list[tuple[tuple[Chunk, ...], list[int]]]:
    """Return the stages that differ in their passes, and the places in the pipeline of those that are like each."""
    found: dict[tuple[int, ...], list[int]] = {}
    for place, stage in enumerate(step.stages):
        found.setdefault(tuple(id(chunk.last) for chunk in stage), []).append(place)
    return [(step.stages[places[0]], places) for places in found.values()]


class Mix(NamedTuple):
    """The fraction of the time of passes that arithmetic limits, and memory; in the rest a device waits."""

    arithmetic: Any
    memory: Any


def mixes_of(step: Program) -> tuple[Mix, Mix]:
    """Return what limits forward, and backward with recomputation, (stages, variants) each."""
    limited = np.zeros((2, 2, step.schedule.ranks, step.shape[1]))  # pass, limit
    seconds = np.zeros((2, step.schedule.ranks, step.shape[1]))
    for stage, places in alike(step):
        for chunk in stage:
            for variant, prices in enumerate(chunk.backward.prices):
                again = chunk.backward.variants[variant].repeated
                ahead, back = (np.array(prices.limited[phase]) for phase in ("forward", "backward"))
                both = back.sum(axis=-1) + ahead[:, again].sum(axis=-1)
                limited[0, :, places, variant] += ahead.sum(axis=-1)
                limited[1, :, places, variant] += both
                seconds[0, places, variant] += prices.forward.sum()
                both = prices.backward.sum() + prices.forward[again].sum()
                seconds[1, places, variant] += both
    fraction = limited / np.where(seconds > 0, seconds, 1.0)[:, None]
    return Mix(*fraction[0]), Mix(*fraction[1])


def messages_of(step: Program) -> tuple[dict[str, Cost], dict[str, float]]:
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

    links = Counter[Cost]()
    known = {id(what): what for row in step.end for what in row}
    for stage, places in alike(step):
        for chunk in stage:
            for block, times in chunk.passes(many):
                for what, count in _most(block) if times else ():
                    add(what, block.prices[0], len(places) * times * count)
            for what in chunk.hidden:
                cost = chunk.backward.prices[0].priced(what).cost
                messages[what.kind] += cost.times(len(places) * many * mean)
        prices = stage[0].last.prices[0]
        ends = [row[place] for row in step.end for place in places]
        for key, count in Counter(map(id, ends)).items():
            add(known[key], prices, count)
    for stage in step.stages:
        links.update(chunk.sends for chunk in stage)
    for cost, count in links.items():
        messages[step.between] += cost.times(2 * count * many * mean)
    return messages, within


def _most(block: Block) -> tuple[tuple[Collective | Move, int], ...]:
    """Return the messages of the variant that exchanges longest within a pass."""
    if len(block.variants) == 1:
        return block.variants[0].messages

    def seconds(messages: tuple[tuple[Collective | Move, int], ...]) -> float:
        inside = ((what, n) for what, n in messages if isinstance(what, Collective))
        return sum(n * block.prices[0].priced(what).seconds for what, n in inside)

    return max((each.messages for each in block.variants), key=seconds)


def pass_seconds(block: Block) -> float:
    """Return the seconds of a pass with what its ranks exchange within it, if nothing has to be waited for."""
    runs = (each for each in block.folded if isinstance(each, Run))
    return sum(float(np.max(r.head + r.middle + r.tail)) + r.messages for r in runs)


def ranked_exchanges(step: Program) -> int:
    """Return how many collectives of a step ranks leave one by one."""
    many, found = step.schedule.microbatches, 0
    for place, stage in enumerate(step.stages):
        for chunk in stage:
            for block, times in chunk.passes(many):
                found += times * sum(
                    count for what, count in block.variants[0].messages if _is_ranked(what)
                )
        found += sum(_is_ranked(row[place]) for row in step.end)
    return found


def _is_ranked(what: Instruction | None) -> bool:
    return isinstance(what, Collective) and what.ranked
