"""A pipeline as streams of small instructions, one stream a rank; pipelines.py has the schedules.

Each of p ranks holds v chunks of the network; stage s of the p v stages is chunk s // p of rank s % p. A
batch is split into m microbatches, which pass all stages forward, then all stages backward. Sends are
non-blocking, receives block. Where microbatches enter from both ends (dualpipe.py), stages 0 to p - 1 are of those
that enter at rank 0, and the others of those that enter at rank p - 1.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TypeAlias, overload


@dataclass(frozen=True)
class Forward:
    """Compute the output of a chunk and store its activations for backward."""

    microbatch: int
    chunk: int


@dataclass(frozen=True)
class Backward:
    """Compute the gradients of a chunk and free its stored activations; `WeightGradients` may follow."""

    microbatch: int
    chunk: int


@dataclass(frozen=True)
class WeightGradients:
    """Compute the weight gradients of a chunk, and free what its Backward stored for them."""

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


Work: TypeAlias = Forward | Backward | WeightGradients


@dataclass(frozen=True)
class PassGroup:
    """Passes in one turn: the first starts when all messages for them have arrived; theirs leave after the last.

    overlapped: a forward pass and all of a backward pass, interleaved, so that the communication of one is hidden
    behind the computation of the other.
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


Turn: TypeAlias = Work | PassGroup
Instruction: TypeAlias = Work | Send | Receive


@dataclass(frozen=True)
class SteadyState:
    """How the passes of ranks repeat: after a warm-up come rounds of passes, one kind after another, then the rest.

    No pass of a round needs a message of a later one, and passes that complete gradients are in no round.
    """

    first: Callable[[int], int]  # passes of a rank in the warm-up
    each: tuple[tuple[int, int], ...]  # passes of a rank in a round, and how many such rounds
    microbatches: int = 1  # that add one round of each kind


class Streams(Sequence[tuple[Instruction, ...]]):
    """The streams of all ranks, made lazily from the order of each rank's passes."""

    def __init__(
        self,
        order: Callable[[int], Iterator[Turn]],
        ranks: int,
        chunks: int,
        rounds: SteadyState,
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
            if isinstance(work, WeightGradients):
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
    def __getitem__(self, key: int | slice) -> tuple[object, ...]:
        """Return the stream of a rank."""
        return self.made[key]

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
        return (instruction for instruction in self.streams[rank] if isinstance(instruction, Work))

    def passes(self, rank: int) -> Iterator[Work]:
        """Yield the passes of a rank in its order, without its messages."""
        return chain.from_iterable(map(passes_of, self.turns(rank)))

    @cached_property
    def overlapped(self) -> tuple[tuple[int, ...], ...]:
        """Per rank and chunk: the turns in which its forward pass overlaps with a backward pass of the other chunk."""
        if self.directions == 1 or not isinstance(self.streams, Streams):
            return ((0,) * self.chunks,) * self.ranks
        pairs = []
        for rank in range(self.ranks):
            # Forward passes are alone only before the rounds, of which there may be many millions.
            first = [*islice(self.turns(rank), self.streams.rounds.first(rank))]
            alone = [turn.chunk for turn in first if isinstance(turn, Forward)]
            overlaps = any(isinstance(turn, PassGroup) and turn.overlapped for turn in first)
            pairs.append(
                tuple(overlaps * (self.each - alone.count(index)) for index in range(self.chunks))
            )
        return tuple(pairs)

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
        return any(isinstance(step, WeightGradients) for step in self.passes(0))


def passes_of(turn: Turn) -> tuple[Work, ...]:
    """Return the passes of a turn."""
    return turn.passes if isinstance(turn, PassGroup) else (turn,)


def neighbor(stage: int, step: int, ranks: int, chunks: int, directions: int) -> int:
    """Return the stage after one, or before it; see Pipeline.next_to."""
    if directions == 1:
        return stage + step if 0 <= stage + step < ranks * chunks else -1
    chunk, rank = divmod(stage, ranks)
    rank += -step if chunk else step
    return chunk * ranks + rank if 0 <= rank < ranks else -1
