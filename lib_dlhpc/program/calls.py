"""The passes of a pipeline in an order in which each follows the pass whose message it needs."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.schedules.pipeline import PIPELINES, Backward, Forward, Pipeline, Weights, Work

FORWARD, BACKWARD, WEIGHTS = PASSES = ("forward", "backward", "weights")
_KINDS = {Forward: FORWARD, Backward: BACKWARD, Weights: WEIGHTS}


def phase_of(work: Work) -> str:
    """Return which pass an instruction of a pipeline is."""
    return _KINDS[type(work)]


# A pass, which message it needs and which it gives, the stage to which it sends, the stage before the boundary that it
# crosses, whether it is the first forward pass of its chunk or completes its gradients; -1: none.
Linked: TypeAlias = tuple[Work, int, int, int, int, bool]


class Call(NamedTuple):
    """A pass of one microbatch through a chunk, from the receive before it to the send after it."""

    place: int  # of the stage's rank in the pipeline
    chunk: int
    microbatch: int
    phase: str  # one of PASSES
    once: (
        bool  # the first forward pass through this chunk, or the pass that completes its gradients
    )
    source: int  # the index of the call whose message it receives; -1: it receives none
    target: int  # the place to which it sends; -1: it sends nothing
    before: tuple[
        int, int
    ]  # place and chunk of the stage before the boundary that its message crosses


@lru_cache(maxsize=8)
def pipeline(schedule: str, ranks: int, microbatches: int, chunks: int) -> Pipeline:
    """Return the streams of instructions of a pipeline; one rank has one as well."""
    if schedule == "interleaved":
        return PIPELINES["interleaved"](ranks, microbatches, chunks)
    return PIPELINES[schedule](ranks, microbatches)


def calls(pipeline: Pipeline) -> tuple[Call, ...]:
    """Return the calls of all ranks, each after the call whose message it needs."""
    return _calls(Keyed(pipeline, id(pipeline)))


@lru_cache(maxsize=8)
def _calls(key: Keyed[Pipeline]) -> tuple[Call, ...]:
    ranks, found = key.value.ranks, []
    for place, work, source, after, crossed, once in ordered(key.value):
        boundary = (crossed % ranks, crossed // ranks)
        target = after % ranks if after >= 0 else -1
        one = (place, work.chunk, work.microbatch, phase_of(work), once, source, target, boundary)
        found.append(Call(*one))
    return tuple(found)


def ordered(key: Pipeline) -> Iterator[tuple[int, Work, int, int, int, bool]]:
    """Yield passes, each after the one whose message it needs: the place and the work, the number of the pass from
    which it receives, the stage to which it sends, the stage before the boundary that it crosses, and whether it
    is the first forward pass of its chunk or completes its gradients."""
    ranks, stages, many = key.ranks, key.ranks * key.chunks, key.microbatches
    todo = [iter(_linked(key, place)) for place in range(ranks)]
    made = [-1] * (2 * stages * many)  # the number of each message's pass
    waiting: list[Linked | None] = [next(each, None) for each in todo]
    count, moved = 0, True
    while moved:
        moved = False
        for place, passes in enumerate(todo):
            one = waiting[place]
            while one is not None:
                work, needs, gives, after, crossed, once = one
                source = made[needs] if needs >= 0 else -1
                if needs >= 0 and source < 0:
                    break
                yield place, work, source, after, crossed, once
                if gives >= 0:
                    made[gives] = count
                count, moved, one = count + 1, True, next(passes, None)
            waiting[place] = one


def _linked(key: Pipeline, place: int) -> Iterator[Linked]:
    """Yield the passes of a place with what they receive and send."""
    ranks, stages, many = key.ranks, key.ranks * key.chunks, key.microbatches
    passes = list(key.passes(place))
    alone = {id(work) for work in _once(passes)}
    links = {}
    for chunk in range(key.chunks):
        stage = chunk * ranks + place
        for back, kind in enumerate((Forward, Backward)):
            before, after = (stage + 1, stage - 1) if back else (stage - 1, stage + 1)
            crossed = after if back else stage
            receives = 0 <= before < stages and before % ranks != place
            if not (0 <= after < stages and after % ranks != place):
                after = -1
            needs = (2 * before + back) * many if receives else -1
            links[kind, chunk] = needs, (2 * stage + back) * many, after, crossed
        links[Weights, chunk] = -1, -1, -1, stage
    for work in passes:
        needs, gives, after, crossed = links[type(work), work.chunk]
        number = work.microbatch
        yield (
            work,
            needs + number if needs >= 0 else -1,
            gives + number if gives >= 0 else -1,
            after,
            crossed,
            id(work) in alone,
        )


def _once(passes: Sequence[Work]) -> list[Work]:
    """Return the first forward pass through each chunk, and the pass that completes its gradients."""
    first = {work.chunk: work for work in reversed(passes) if type(work) is Forward}
    last = {work.chunk: work for work in passes if type(work) is not Forward}
    return [*first.values(), *last.values()]
