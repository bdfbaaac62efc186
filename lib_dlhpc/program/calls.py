"""The passes of a pipeline in an order in which each follows the pass whose message it needs.

A schedule (schedules/pipelines.py) is one list of passes for each rank. Ranks advance in turn, each until it needs a
message whose pass has not been reached, and so on until no rank advances. The order says what follows what, not when.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.schedules.pipeline import (
    Backward,
    Forward,
    PassGroup,
    Pipeline,
    Turn,
    WeightGradients,
)
from lib_dlhpc.schedules.pipelines import PIPELINES

FORWARD, BACKWARD, WEIGHTS = PASSES = ("forward", "backward", "weights")
OVERLAPPED = "overlapped"  # a forward pass and all of a backward pass, interleaved
_KINDS = {Forward: FORWARD, Backward: BACKWARD, WeightGradients: WEIGHTS, PassGroup: OVERLAPPED}
_NUMBERS = {kind: number for number, kind in enumerate(_KINDS)}
Numbers: TypeAlias = NDArray[np.int64]


def phase_of(work: Turn) -> str:
    """Return which pass an instruction of a pipeline is, or that it is several."""
    return _KINDS[type(work)]


class Call(NamedTuple):
    """A pass of one microbatch through a chunk, from the receive before it to the send after it."""

    place: int  # of the stage's rank in the pipeline
    chunk: int
    microbatch: int
    # One of PASSES, or OVERLAPPED: then chunk and microbatch are those of the forward pass.
    phase: str
    # Whether it is the first forward pass of its chunk, or the pass that completes its gradients.
    once: bool
    source: int  # the index of the call whose message it receives; -1: it receives none
    target: int  # the place to which it sends; -1: it sends nothing
    # Place and chunk of the stage before the boundary that its message crosses.
    before: tuple[int, int]
    computes: bool = True  # or it only waits for, or sends, a message of a turn of several passes
    partner: tuple[int, int] = (-1, -1)  # chunk and microbatch of an overlapped backward pass

    @property
    def halves(self) -> "tuple[Call, ...]":
        """The forward and the backward pass of an overlapped call; any other call itself."""
        if self.phase != OVERLAPPED:
            return (self,)
        chunk, microbatch = self.partner
        back = self._replace(phase=BACKWARD, chunk=chunk, microbatch=microbatch)
        return self._replace(phase=FORWARD), back


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
    return tuple(_ordered(key.value))


def _ordered(key: Pipeline) -> Iterator[Call]:
    """Yield the calls, each after the one whose message it needs."""
    ranks, (works, links) = key.ranks, linked(key)
    numbers = (array.tolist() for array in (links.needs, links.gives, links.after, links.crossed))
    columns = works, *numbers, (links.once > 0).tolist(), (links.computes > 0).tolist()
    edges = np.searchsorted(links.place, np.arange(ranks + 1)).tolist()
    todo = [zip(*(column[a:b] for column in columns), strict=True) for a, b in pairwise(edges)]
    made = [-1] * messages(key)  # the number of each message's pass
    waiting = [next(array, None) for array in todo]
    count, moved = 0, True
    while moved:
        moved = False
        for place, passes in enumerate(todo):
            row = waiting[place]
            while row is not None:
                work, needs, gives, after, crossed, once, computes = row
                source = made[needs] if needs >= 0 else -1
                if needs >= 0 and source < 0:
                    break
                target = after % ranks if after >= 0 else -1
                boundary = crossed % ranks, crossed // ranks
                kind = phase_of(work), once, source, target, boundary, computes, _partner(work)
                yield Call(place, work.chunk, work.microbatch, *kind)
                if gives >= 0:
                    made[gives] = count
                count, moved, row = count + 1, True, next(passes, None)
            waiting[place] = row


def _partner(work: Turn) -> tuple[int, int]:
    if not isinstance(work, PassGroup):
        return (-1, -1)
    return work.passes[1].chunk, work.passes[1].microbatch


def messages(key: Pipeline) -> int:
    """Return how many messages the calls of a pipeline number."""
    return 2 * key.ranks * key.chunks * key.microbatches


class CallLinks(NamedTuple):
    """What each call of a pipeline is, receives and sends, place after place, (calls,) each; -1: none."""

    place: Numbers
    chunk: Numbers
    kind: Numbers  # the index of one of PASSES, or of OVERLAPPED behind them
    needs: Numbers  # a message
    gives: Numbers
    after: Numbers  # the stage to which it sends
    crossed: Numbers  # the stage before the boundary that its message crosses
    once: Numbers  # 1: the first forward pass of its chunk, or it completes the gradients
    computes: Numbers  # 0: it only receives or sends


def linked(key: Pipeline) -> tuple[Sequence[Turn], CallLinks]:
    """Return what all calls of a pipeline do, and how messages link them."""
    turns_of: list[Sequence[Turn]] = [[*key.turns(place)] for place in range(key.ranks)]
    flags: Any = (True, True, True)
    if any(PassGroup in set(map(type, turns)) for turns in turns_of):
        steps = [[step for turn in turns for step in _steps(turn)] for turns in turns_of]
        turns_of = [[work for work, *_ in step] for step in steps]
        flags = [flag for step in steps for _, *flag in step]
    works = [*chain.from_iterable(turns_of)]
    receives, sends, computes = np.broadcast_to(flags, (len(works), 3)).T
    place = np.repeat(np.arange(key.ranks), [*map(len, turns_of)])
    kind = np.fromiter(map(_NUMBERS.__getitem__, map(type, works)), np.int64)
    chunk = np.fromiter((work.chunk for work in works), np.int64)
    microbatch = np.fromiter((work.microbatch for work in works), np.int64)
    needs, gives, after, crossed = _links(key)[kind, chunk, place].T
    columns = (
        *(place, chunk, kind),
        np.where((needs >= 0) & receives, needs + microbatch, -1),
        np.where((gives >= 0) & sends, gives + microbatch, -1),
        np.where(sends, after, -1),
        crossed,
        _once(kind, place * key.chunks + chunk, computes),
        computes,
    )
    return works, CallLinks(*np.array(columns, np.int64))


def _links(key: Pipeline) -> Numbers:
    """Return of each kind of pass, chunk and place the first of the messages it needs, and of those it gives, the stage
    to which it sends, and the one before the boundary that these cross, (kinds, chunks, places, 4)."""
    table = np.full((len(_NUMBERS), key.chunks, key.ranks, 4), -1)
    for chunk, place in np.ndindex(key.chunks, key.ranks):
        stage = chunk * key.ranks + place
        for back in (0, 1):
            before, after = (key.next_to(stage, way) for way in ((1, -1) if back else (-1, 1)))
            receives = before >= 0 and before % key.ranks != place
            needs, gives = ((2 * stages + back) * key.microbatches for stages in (before, stage))
            to = -1 if after % key.ranks == place else after
            row = needs if receives else -1, gives, to, after if back else stage
            table[back, chunk, place] = row
        table[_NUMBERS[WeightGradients], chunk, place, 3] = stage
    return table


def _steps(turn: Turn) -> Iterator[tuple[Turn, bool, bool, bool]]:
    """Yield the calls of a turn, and whether each receives, sends and computes: before the first pass what waits for
    the messages of others, after the last what sends. Passes that overlap are one, which neither receives nor sends."""
    if not isinstance(turn, PassGroup):
        yield turn, True, True, True
        return
    passes, moves = turn.passes, [work for work in turn.passes if type(work) is not WeightGradients]
    first, last = (None, None) if turn.overlapped else (passes[0], passes[-1])
    yield from ((work, True, False, False) for work in moves if work is not first)
    if turn.overlapped:
        yield turn, False, False, True
    else:
        yield from ((work, work is first, work is last, True) for work in passes)
    yield from ((work, False, True, False) for work in moves if work is not last)


def _once(kind: Numbers, stage: Numbers, computes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which calls are the first forward pass of a stage, or the pass that completes its gradients."""
    once, ahead = np.zeros(len(kind), bool), kind == PASSES.index(FORWARD)
    first = np.flatnonzero(computes & ahead)
    last = np.flatnonzero(computes & ~ahead & (kind < len(PASSES)))[::-1]
    for calls_of in (first, last):
        once[calls_of[np.unique(stage[calls_of], return_index=True)[1]]] = True
    return once
