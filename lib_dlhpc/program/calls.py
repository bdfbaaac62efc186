"""The passes of a pipeline in an order in which each follows the pass whose message it needs."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.schedules.pipeline import PIPELINES, Backward, Forward, Pipeline, Weights, Work

FORWARD, BACKWARD, WEIGHTS = PASSES = ("forward", "backward", "weights")
_KINDS = {Forward: FORWARD, Backward: BACKWARD, Weights: WEIGHTS}


def phase_of(work: Work) -> str:
    """Return which pass an instruction of a pipeline is."""
    return _KINDS[type(work)]


class Call(NamedTuple):
    """A pass of one microbatch through a chunk, from the receive before it to the send after it."""

    place: int  # of the stage's rank in the pipeline
    chunk: int
    microbatch: int
    phase: str  # one of PASSES
    last: bool  # the pass through this chunk that completes its gradients
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
    for place, work, source, after, crossed, last in ordered(key.value):
        boundary = (crossed % ranks, crossed // ranks)
        target = after % ranks if after >= 0 else -1
        one = (place, work.chunk, work.microbatch, phase_of(work), last, source, target, boundary)
        found.append(Call(*one))
    return tuple(found)


def ordered(key: Pipeline) -> Iterator[tuple[int, Work, int, int, int, bool]]:
    """Yield passes, each after the one whose message it needs: the place and the work, the number of the pass from
    which it receives, the stage to which it sends, the stage before the boundary that it crosses, and whether it
    completes the gradients of its chunk."""
    ranks, stages = key.ranks, key.ranks * key.chunks
    todo = [list(key.passes(place)) for place in range(ranks)]
    final = [{id(last) for last in _last(passes).values()} for passes in todo]
    at = [0] * ranks
    made = [[-1] * key.microbatches for _ in range(2 * stages)]  # by stage forward, and backward
    count, moved = 0, True
    while moved:
        moved = False
        for place, passes in enumerate(todo):
            for number in range(at[place], len(passes)):
                work = passes[number]
                stage, source, after = work.chunk * ranks + place, -1, -1
                back, crossed = isinstance(work, Backward), stage
                if not isinstance(work, Weights):
                    before, after = (stage + 1, stage - 1) if back else (stage - 1, stage + 1)
                    crossed = after if back else stage
                    if 0 <= before < stages and before % ranks != place:
                        source = made[2 * before + back][work.microbatch]
                        if source < 0:
                            break
                    made[2 * stage + back][work.microbatch] = count
                    if not 0 <= after < stages or after % ranks == place:
                        after = -1
                yield place, work, source, after, crossed, id(work) in final[place]
                count, moved, at[place] = count + 1, True, number + 1


def _last(passes: Sequence[Work]) -> dict[int, Work]:
    """Return the pass through each chunk that completes its gradients."""
    return {work.chunk: work for work in passes if not isinstance(work, Forward)}
