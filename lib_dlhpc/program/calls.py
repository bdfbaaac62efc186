"""The passes of a pipeline in an order in which each follows the pass whose message it needs."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, TypeAlias

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.schedules.pipeline import (
    Backward,
    Forward,
    Pipeline,
    Together,
    Turn,
    Weights,
    Work,
    passes_of,
)
from lib_dlhpc.schedules.pipelines import PIPELINES

FORWARD, BACKWARD, WEIGHTS = PASSES = ("forward", "backward", "weights")
OVERLAPPED = "overlapped"  # a forward pass and all of a backward pass, interleaved
_KINDS = {Forward: FORWARD, Backward: BACKWARD, Weights: WEIGHTS, Together: OVERLAPPED}


def phase_of(work: Turn) -> str:
    """Return which pass an instruction of a pipeline is, or that it is several."""
    return _KINDS[type(work)]


# A pass, which message it needs and which it gives, the stage to which it sends, the stage before the boundary that it
# crosses, whether it is the first forward pass of its chunk or completes its gradients, and whether it computes or only
# receives or sends; -1: none.
Linked: TypeAlias = tuple[Turn, int, int, int, int, bool, bool]
# Of a kind of pass and a chunk: the first of the messages it needs, and of those it gives, the stage to which it sends,
# and the one before the boundary that these cross.
Links: TypeAlias = dict[tuple[type, int], tuple[int, int, int, int]]


class Call(NamedTuple):
    """A pass of one microbatch through a chunk, from the receive before it to the send after it."""

    place: int  # of the stage's rank in the pipeline
    chunk: int
    microbatch: int
    phase: (
        str  # one of PASSES, or OVERLAPPED: then chunk and microbatch are those of the forward pass
    )
    once: (
        bool  # the first forward pass through this chunk, or the pass that completes its gradients
    )
    source: int  # the index of the call whose message it receives; -1: it receives none
    target: int  # the place to which it sends; -1: it sends nothing
    before: tuple[
        int, int
    ]  # place and chunk of the stage before the boundary that its message crosses
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
    ranks, found = key.value.ranks, []
    for place, work, source, after, crossed, once, computes in ordered(key.value):
        boundary = (crossed % ranks, crossed // ranks)
        target = after % ranks if after >= 0 else -1
        one = (place, work.chunk, work.microbatch, phase_of(work), once, source, target, boundary)
        partner = (-1, -1)
        if isinstance(work, Together):
            partner = work.passes[1].chunk, work.passes[1].microbatch
        found.append(Call(*one, computes, partner))
    return tuple(found)


def ordered(key: Pipeline) -> Iterator[tuple[int, Turn, int, int, int, bool, bool]]:
    """Yield passes, each after the one whose message it needs: the place and the work, or a turn if its passes
    overlap, the number of the pass from which it receives, the stage to which it sends, the stage before the boundary
    that it crosses, whether it is the first forward pass of its chunk or completes its gradients, and whether it
    computes."""
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
                work, needs, gives, after, crossed, once, computes = one
                source = made[needs] if needs >= 0 else -1
                if needs >= 0 and source < 0:
                    break
                yield place, work, source, after, crossed, once, computes
                if gives >= 0:
                    made[gives] = count
                count, moved, one = count + 1, True, next(passes, None)
            waiting[place] = one


def _linked(key: Pipeline, place: int) -> Iterator[Linked]:
    """Yield the passes of a place with what they receive and send."""
    ranks, many = key.ranks, key.microbatches
    turns = list(key.turns(place))
    alone = {id(work) for work in _once([*chain.from_iterable(map(passes_of, turns))])}
    links: Links = {}
    for chunk in range(key.chunks):
        stage = chunk * ranks + place
        for back, kind in enumerate((Forward, Backward)):
            before, after = (key.next_to(stage, way) for way in ((1, -1) if back else (-1, 1)))
            crossed = after if back else stage
            receives = before >= 0 and before % ranks != place
            if after % ranks == place:
                after = -1
            needs = (2 * before + back) * many if receives else -1
            links[kind, chunk] = needs, (2 * stage + back) * many, after, crossed
        links[Weights, chunk] = -1, -1, -1, stage
    for turn in turns:
        if isinstance(turn, Together):
            yield from _of_several(turn, links, alone)
            continue
        needs, gives, after, crossed = links[type(turn), turn.chunk]
        number = turn.microbatch
        yield (
            turn,
            needs + number if needs >= 0 else -1,
            gives + number if gives >= 0 else -1,
            after,
            crossed,
            id(turn) in alone,
            True,
        )


def _of_several(turn: Together, links: Links, alone: set[int]) -> Iterator[Linked]:
    """Yield the passes of a turn: before the first what waits for the messages of others, after the last what sends.

    Passes that overlap are one, which neither receives nor sends.
    """
    passes = turn.passes
    moves = [work for work in passes if type(work) is not Weights]
    if turn.overlapped:
        yield from _messages_of(moves, links, True)
        yield turn, -1, -1, -1, -1, False, True
        yield from _messages_of(moves, links, False)
        return
    waits = [(work, True, False, False) for work in moves if work is not passes[0]]
    works = [(work, work is passes[0], work is passes[-1], True) for work in passes]
    sends = [(work, False, True, False) for work in moves if work is not passes[-1]]
    for work, receives, gives_now, computes in (*waits, *works, *sends):
        needs, gives, after, crossed = links[type(work), work.chunk]
        yield (
            work,
            needs + work.microbatch if receives and needs >= 0 else -1,
            gives + work.microbatch if gives_now and gives >= 0 else -1,
            after if gives_now else -1,
            crossed,
            computes and id(work) in alone,
            computes,
        )


def _messages_of(passes: Sequence[Work], links: Links, received: bool) -> Iterator[Linked]:
    """Yield passes that only receive, or only send."""
    for work in passes:
        needs, gives, after, crossed = links[type(work), work.chunk]
        needs = needs + work.microbatch if received and needs >= 0 else -1
        gives, after = (-1, -1) if received else (gives + work.microbatch, after)
        yield work, needs, gives, after, crossed, False, False


def _once(passes: Sequence[Work]) -> list[Work]:
    """Return the first forward pass through each chunk, and the pass that completes its gradients."""
    first = {work.chunk: work for work in reversed(passes) if type(work) is Forward}
    last = {work.chunk: work for work in passes if type(work) is not Forward}
    return [*first.values(), *last.values()]
