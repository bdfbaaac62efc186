"""Pipelines as streams of small instructions, one stream a rank: GPipe, 1F1B, interleaved 1F1B, zero bubble.

Each of p ranks holds v chunks of the network; stage s of the p v stages is chunk s // p of rank s % p. A
batch is split into m microbatches, which pass all stages forward, then all stages backward. Sends are
non-blocking, receives block. Where microbatches enter from both ends (dualpipe.py), stages 0 to p - 1 are of those
that enter at rank 0, and the others of those that enter at rank p - 1.

Sources: Huang et al., "GPipe" (2019), section 2; Narayanan et al., "Efficient large-scale language model training on
GPU clusters" (2021), section 2.2; Qi et al., "Zero bubble pipeline parallelism" (2024), section 2.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import TypeAlias, overload

from lib_dlhpc.errors import SpecError


@dataclass(frozen=True)
class Forward:
    """Compute the output of a chunk and store its activations for backward."""

    microbatch: int
    chunk: int


@dataclass(frozen=True)
class Backward:
    """Compute the gradients of a chunk and free its stored activations; without those of its weights if they follow."""

    microbatch: int
    chunk: int


@dataclass(frozen=True)
class Weights:
    """Compute the weight gradients of a chunk, and free what its Backward has left for that."""

    microbatch: int
    chunk: int


@dataclass(frozen=True)
class Send:
    """Send an "activation" or a "gradient" of stage `stage` to rank `peer`."""

    what: str
    microbatch: int
    stage: int
    peer: int


@dataclass(frozen=True)
class Receive:
    """Receive an "activation" or a "gradient" of stage `stage` from rank `peer`."""

    what: str
    microbatch: int
    stage: int
    peer: int


Work: TypeAlias = Forward | Backward | Weights


@dataclass(frozen=True)
class Together:
    """Passes in one turn: the first starts when all their messages are there; all they send leaves after the last.

    overlapped: they are a forward pass and all of a backward pass, interleaved, so that what one exchanges hides
    behind what the other computes.
    """

    passes: tuple[Work, ...]
    overlapped: bool = False

    @property
    def microbatch(self) -> int:
        """The microbatch of the first pass."""
        return self.passes[0].microbatch

    @property
    def chunk(self) -> int:
        """The chunk of the first pass."""
        return self.passes[0].chunk


FEW = 4096  # passes of a rank in one direction, up to which they are made once for all ranks
Turn: TypeAlias = Work | Together
Instruction: TypeAlias = Work | Send | Receive


@dataclass(frozen=True)
class Rounds:
    """How the passes of ranks repeat: first some that do not, then rounds, one kind after another, then the rest.

    No pass of a round needs a message of a later one, and passes that complete gradients are in no round.
    """

    first: Callable[[int], int]  # passes of a rank before the rounds
    each: tuple[tuple[int, int], ...]  # passes of a rank in a round, and how many such rounds
    microbatches: int = 1  # with which there is one more round of each kind


class Streams(Sequence[tuple[Instruction, ...]]):
    """The streams of all ranks, made from the order of each rank's passes when they are first read."""

    def __init__(
        self,
        order: Callable[[int], Iterator[Turn]],
        ranks: int,
        chunks: int,
        rounds: Rounds,
        directions: int = 1,
    ) -> None:
        self.order, self.ranks, self.chunks, self.rounds = order, ranks, chunks, rounds
        self.directions = directions

    @cached_property
    def made(self) -> tuple[tuple[Instruction, ...], ...]:
        """The streams, with the receives before and the sends after each rank's work."""
        return tuple(
            tuple(step for turn in self.order(rank) for step in self._with_messages(turn, rank))
            for rank in range(self.ranks)
        )

    def _with_messages(self, turn: Turn, rank: int) -> Iterator[Instruction]:
        works = passes_of(turn)
        sends = list[Send]()
        for work in works:
            if isinstance(work, Weights):
                continue
            stage = work.chunk * self.ranks + rank
            ahead = isinstance(work, Forward)
            what, step = ("activation", 1) if ahead else ("gradient", -1)
            before, after = (
                neighbor(stage, way, self.ranks, self.chunks, self.directions)
                for way in (-step, step)
            )
            if before >= 0 and before % self.ranks != rank:
                yield Receive(what, work.microbatch, before, before % self.ranks)
            if after >= 0 and after % self.ranks != rank:
                sends.append(Send(what, work.microbatch, stage, after % self.ranks))
        yield from works
        yield from sends

    @overload
    def __getitem__(self, at: int) -> tuple[Instruction, ...]: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[tuple[Instruction, ...], ...]: ...
    def __getitem__(self, at: int | slice) -> tuple[object, ...]:
        """Return the stream of a rank."""
        return self.made[at]

    def __len__(self) -> int:
        """Return the number of ranks."""
        return self.ranks

    def __eq__(self, other: object) -> bool:
        """Whether the streams are the same."""
        return tuple(self) == (tuple(other) if isinstance(other, Streams) else other)

    def __hash__(self) -> int:
        return hash(self.made)


@dataclass(frozen=True)
class Pipeline:
    """A stream of instructions for each of `ranks` ranks."""

    name: str
    ranks: int
    microbatches: int
    chunks: int
    streams: Sequence[tuple[Instruction, ...]]
    directions: int = 1  # 2: microbatches enter from both ends, half of them each

    def turns(self, rank: int) -> Iterator[Turn]:
        """Yield the turns of a rank in its order, without its messages."""
        if isinstance(self.streams, Streams):
            return self.streams.order(rank)
        return (each for each in self.streams[rank] if isinstance(each, Work))

    def passes(self, rank: int) -> Iterator[Work]:
        """Yield the passes of a rank in its order, without its messages."""
        return chain.from_iterable(map(passes_of, self.turns(rank)))

    @cached_property
    def overlapped(self) -> tuple[tuple[int, ...], ...]:
        """In how many turns of each rank a forward pass of each chunk overlaps with a backward pass of the other."""
        if self.directions == 1 or not isinstance(self.streams, Streams):
            return ((0,) * self.chunks,) * self.ranks
        found = []
        for rank in range(self.ranks):
            # Forward passes are alone only before the rounds, of which there may be many millions.
            first = [*islice(self.turns(rank), self.streams.rounds.first(rank))]
            alone = [turn.chunk for turn in first if isinstance(turn, Forward)]
            some = any(isinstance(turn, Together) and turn.overlapped for turn in first)
            found.append(tuple(some * (self.each - alone.count(at)) for at in range(self.chunks)))
        return tuple(found)

    @property
    def each(self) -> int:
        """The microbatches that pass a chunk."""
        return self.microbatches // self.directions

    def through(self, chunk: int) -> range:
        """Return the microbatches that pass a chunk: all, or those of its direction."""
        first = self.each * chunk if self.directions > 1 else 0
        return range(first, first + self.each)

    def next_to(self, stage: int, step: int) -> int:
        """Return the stage after one (step = 1) or before it (step = -1), as microbatches pass forward; -1: none."""
        return neighbor(stage, step, self.ranks, self.chunks, self.directions)

    @cached_property
    def splits_backward(self) -> bool:
        """Whether weight gradients are computed apart."""
        return any(isinstance(step, Weights) for step in self.passes(0))


def gpipe(ranks: int, microbatches: int) -> Pipeline:
    """All forward, then all backward, last first. Bubble (p-1)/m; activations of all microbatches are stored."""

    check_counts(ranks=ranks, microbatches=microbatches)
    forward, backward = _works(Forward, microbatches), _works(Backward, microbatches)

    def order(rank: int) -> Iterator[Work]:
        yield from forward
        yield from reversed(backward)

    rounds = Rounds(lambda _: 0, ((1, microbatches), (1, microbatches - 1)))
    return _pipeline("gpipe", ranks, microbatches, 1, order, rounds)


def one_f_one_b(ranks: int, microbatches: int) -> Pipeline:
    """Alternate forward and backward once the pipeline is full. Bubble (p-1)/m; rank r stores p - r microbatches."""

    check_counts(ranks=ranks, microbatches=microbatches)
    forward, backward = _works(Forward, microbatches), _works(Backward, microbatches)

    def order(rank: int) -> Iterator[Work]:
        return _one_by_one(forward, backward, ranks - rank - 1)

    rounds = Rounds(lambda rank: ranks - rank - 1, ((2, microbatches - ranks),))
    return _pipeline("1f1b", ranks, microbatches, 1, order, rounds)


def interleaved(ranks: int, microbatches: int, chunks: int = 2) -> Pipeline:
    """1F1B with v chunks a rank; the pipeline fills v times faster. Bubble (p-1)/(v m).

    Microbatches run in groups of p. Raises SpecError unless p divides m.
    """
    check_counts(ranks=ranks, microbatches=microbatches, chunks=chunks)
    if microbatches % ranks:
        raise SpecError(
            f"microbatches = {microbatches}: expected a multiple of the {ranks} ranks (interleaved)."
        )

    forward, backward = _turns(ranks, microbatches, chunks)

    def order(rank: int) -> Iterator[Work]:
        warm_up = 2 * (ranks - rank - 1) + (chunks - 1) * ranks
        return _one_by_one(forward, backward, warm_up)

    # Rank r is r times forward and backward ahead of rank 0, as its warm-up is 2 r shorter.
    first = 2 * (ranks - 1) + (chunks - 1) * ranks
    each = (2 * ranks * chunks, microbatches // ranks - 2)
    rounds = Rounds(lambda _: first, (each,), ranks)
    return _pipeline("interleaved", ranks, microbatches, chunks, order, rounds)


def zb_h1(ranks: int, microbatches: int) -> Pipeline:
    """1F1B whose weight gradients wait, on rank r for r microbatches, and fill the idle time at the end.

    With F, B, W s for a forward pass, input gradients and weight gradients the bubble is (p-1)(F + B - W), where
    W <= F, B, against (p-1)(F + B + W). Every rank stores min(p, m) microbatches, the most that a rank does in 1F1B.
    """

    check_counts(ranks=ranks, microbatches=microbatches)
    forward, backward = _works(Forward, microbatches), _works(Backward, microbatches)
    weights = _works(Weights, microbatches)

    def order(rank: int) -> Iterator[Work]:
        later = iter(weights)
        for step in _one_by_one(forward, backward, ranks - rank - 1):
            yield step
            if isinstance(step, Backward) and step.microbatch >= rank:
                yield next(later)
        yield from later

    rounds = Rounds(lambda rank: ranks - 1 + rank, ((3, microbatches - ranks),))
    return _pipeline("zb-h1", ranks, microbatches, 1, order, rounds)


def passes_of(turn: Turn) -> tuple[Work, ...]:
    """Return the passes of a turn."""
    return turn.passes if isinstance(turn, Together) else (turn,)


def neighbor(stage: int, step: int, ranks: int, chunks: int, directions: int) -> int:
    """Return the stage after one, or before it; see Pipeline.next_to."""
    if directions == 1:
        return stage + step if 0 <= stage + step < ranks * chunks else -1
    chunk, rank = divmod(stage, ranks)
    rank += -step if chunk else step
    return chunk * ranks + rank if 0 <= rank < ranks else -1


def check_counts(**counts: int) -> None:
    """Raise SpecError for a count that is no whole number from 1."""
    for field, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SpecError(f"{field} = {value!r}: expected a whole number, at least 1.")


class _Passes(Sequence[Work]):
    """The passes of some numbers; of more than FEW each is made when it is read: a pipeline may have many millions."""

    def __init__(self, make: Callable[[int], Work], numbers: range) -> None:
        self.make, self.numbers = make, numbers

    @cached_property
    def _made(self) -> tuple[Work, ...]:
        return tuple(map(self.make, self.numbers))

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Work: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Work]: ...
    def __getitem__(self, at: int | slice) -> Work | Sequence[Work]:
        """Return a pass, or some."""
        if len(self.numbers) <= FEW:
            return self._made[at]
        numbers = self.numbers[at]
        return self.make(numbers) if isinstance(numbers, int) else _Passes(self.make, numbers)

    def __iter__(self) -> Iterator[Work]:
        return iter(self._made) if len(self.numbers) <= FEW else map(self.make, self.numbers)


@lru_cache(maxsize=1 << 16)
def _pass(kind: Callable[[int, int], Work], microbatch: int, chunk: int) -> Work:
    """Return a pass; all ranks have the same."""
    return kind(microbatch, chunk)


def _works(kind: Callable[[int, int], Work], microbatches: int) -> _Passes:
    """Return a pass of each microbatch."""
    return _Passes(lambda i: _pass(kind, i, 0), range(microbatches))


def _turns(ranks: int, microbatches: int, chunks: int) -> tuple[_Passes, _Passes]:
    """Return the passes of a rank with several chunks, forward and backward; all ranks have the same."""

    def turn(i: int, kind: Callable[[int, int], Work], way: int) -> Work:
        group, place = divmod(i, ranks * chunks)
        chunk = place // ranks
        return _pass(kind, group * ranks + place % ranks, chunk if way > 0 else chunks - 1 - chunk)

    numbers = range(microbatches * chunks)
    return (
        _Passes(lambda i: turn(i, Forward, 1), numbers),
        _Passes(lambda i: turn(i, Backward, -1), numbers),
    )


def _one_by_one(forward: Sequence[Work], backward: Sequence[Work], warm_up: int) -> Iterator[Work]:
    """Yield `warm_up` forwards, then alternate, then the remaining backwards."""
    yield from forward[:warm_up]
    alternate = zip(forward[warm_up:], backward, strict=False)
    yield from chain.from_iterable(alternate)
    yield from backward[max(0, len(forward) - warm_up) :]


def _pipeline(
    name: str,
    ranks: int,
    microbatches: int,
    chunks: int,
    order: Callable[[int], Iterator[Work]],
    rounds: Rounds,
) -> Pipeline:
    """Return the pipeline whose ranks work in this order."""
    return Pipeline(name, ranks, microbatches, chunks, Streams(order, ranks, chunks, rounds))
