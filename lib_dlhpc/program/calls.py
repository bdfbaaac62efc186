"""The passes of a pipeline in an order in which each follows the pass whose message it needs."""

from collections import deque
from functools import lru_cache
from typing import NamedTuple, TypeAlias

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
    return _calls(_Same(pipeline))


# A call as numbers: place, pass, source, boundary; -1: none. A pass is a chunk of a place times the number of PASSES
# plus the index of one of them, a boundary a chunk of a place, each counted through all places.
Row: TypeAlias = tuple[int, int, int, int]


def steps(pipeline: Pipeline) -> tuple[Row, ...]:
    """Return the calls of a pipeline as numbers, for a quick walk; the pass that completes gradients has none."""
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
    made: dict[tuple[int, int, str], int] = {}  # calls, by stage, microbatch, and pass
    moved = True
    while moved:
        moved = False
        for place, passes in enumerate(todo):
            while passes:
                microbatch, chunk, phase = passes[0]
                stage, back = chunk * ranks + place, phase == BACKWARD
                before, after = (stage + 1, stage - 1) if back else (stage - 1, stage + 1)
                if phase == WEIGHTS:
                    before = after = -1
                source = target = -1
                if 0 <= before < stages and before % ranks != place:
                    source = made.get((before, microbatch, phase), -1)
                    if source < 0:
                        break
                if 0 <= after < stages and after % ranks != place:
                    target = after % ranks
                last = final[place][chunk] == (phase, microbatch)
                crossed = after if back else stage
                boundary = (crossed % ranks, crossed // ranks)
                made[stage, microbatch, phase] = len(found)
                found.append(Call(place, chunk, microbatch, phase, last, source, target, boundary))
                passes.popleft()
                moved = True
    return tuple(found)


def _passes(stream: tuple[object, ...]) -> deque[tuple[int, int, str]]:
    """Return microbatch, chunk and kind of each pass of a rank, in its order."""
    return deque(
        (each.microbatch, each.chunk, phase_of(each)) for each in stream if isinstance(each, Work)
    )


@lru_cache(maxsize=8)
def _steps(key: _Same) -> tuple[Row, ...]:
    chunks, rows = key.streams.chunks, []
    for call in calls(key.streams):
        number = len(PASSES) * (call.place * chunks + call.chunk) + PASSES.index(call.phase)
        made = -1 if call.last else number
        boundary = call.before[0] * chunks + call.before[1] if call.target >= 0 else -1
        rows.append((call.place, made, call.source, boundary))
    return tuple(rows)


def _last(stream: tuple[object, ...], chunks: int) -> list[tuple[str, int]]:
    """Return the pass through each chunk that completes its gradients, and its microbatch."""
    found = [("", -1)] * chunks
    for step in stream:
        if isinstance(step, Backward | Weights):
            found[step.chunk] = phase_of(step), step.microbatch
    return found
