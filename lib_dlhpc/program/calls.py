"""The passes of a pipeline in an order in which each follows the pass whose message it needs."""

from collections import deque
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from lib_dlhpc.schedules.pipeline import PIPELINES, Backward, Forward, Pipeline


class Call(NamedTuple):
    """A pass of one microbatch through a chunk, from the receive before it to the send after it."""

    place: int  # of the stage's rank in the pipeline
    chunk: int
    microbatch: int
    backward: bool
    last: bool  # the last backward pass through this chunk
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
    return _calls(_Same(pipeline))


# A call as numbers: place, pass, source, boundary; -1: none. A pass is chunk x 2 + backward of a place, a boundary a
# chunk of a place, each counted through all places.
Row: TypeAlias = tuple[int, int, int, int]


def steps(pipeline: Pipeline) -> tuple[Row, ...]:
    """Return the calls of a pipeline as numbers, for a quick walk; the last backward pass of a chunk has no pass."""
    return _steps(_Same(pipeline))


class _Same:
    """Streams of instructions as the key of a cache: themselves."""

    def __init__(self, streams: Pipeline) -> None:
        self.streams = streams

    def __hash__(self) -> int:
        return id(self.streams)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.streams is other.streams


@lru_cache(maxsize=8)
def _calls(key: _Same) -> tuple[Call, ...]:
    ranks, stages = key.streams.ranks, key.streams.ranks * key.streams.chunks
    todo = [_passes(stream) for stream in key.streams.streams]
    final = [_last(stream, key.streams.chunks) for stream in key.streams.streams]
    found: list[Call] = []
    made: dict[
        tuple[int, int, bool], int
    ] = {}  # calls, by stage, microbatch, and whether they go backward
    moved = True
    while moved:
        moved = False
        for place, passes in enumerate(todo):
            while passes:
                microbatch, chunk, back = passes[0]
                stage = chunk * ranks + place
                before, after = (stage + 1, stage - 1) if back else (stage - 1, stage + 1)
                source = target = -1
                if 0 <= before < stages and before % ranks != place:
                    source = made.get((before, microbatch, back), -1)
                    if source < 0:
                        break
                if 0 <= after < stages and after % ranks != place:
                    target = after % ranks
                last = back and final[place][chunk] == microbatch
                crossed = after if back else stage
                boundary = (crossed % ranks, crossed // ranks)
                made[stage, microbatch, back] = len(found)
                found.append(Call(place, chunk, microbatch, back, last, source, target, boundary))
                passes.popleft()
                moved = True
    return tuple(found)


def _passes(stream: tuple[object, ...]) -> deque[tuple[int, int, bool]]:
    """Return microbatch, chunk and direction of each pass of a rank, in its order."""
    return deque(
        (each.microbatch, each.chunk, isinstance(each, Backward))
        for each in stream
        if isinstance(each, Forward | Backward)
    )


@lru_cache(maxsize=8)
def _steps(key: _Same) -> tuple[Row, ...]:
    chunks, rows = key.streams.chunks, []
    for call in calls(key.streams):
        made = -1 if call.last else 2 * (call.place * chunks + call.chunk) + call.backward
        boundary = call.before[0] * chunks + call.before[1] if call.target >= 0 else -1
        rows.append((call.place, made, call.source, boundary))
    return tuple(rows)


def _last(stream: tuple[object, ...], chunks: int) -> list[int]:
    """Return the microbatch of the last backward pass through each chunk."""
    found = [-1] * chunks
    for step in stream:
        if isinstance(step, Backward):
            found[step.chunk] = step.microbatch
    return found
