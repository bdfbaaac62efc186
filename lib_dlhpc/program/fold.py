"""A block folded: what lies between two instructions of other streams becomes work and messages in four numbers.

Ranks that have exchanged once are in step, so what comes between two exchanges takes as long as it takes the
slowest of them: the first exchange ends when the last rank has done its `head`, and

    end = latest(start + head) + latest(middle) + messages + tail

is exact where all ranks have equal parts. Where parts differ, as at the edges of an image, the largest sum stands
for the sum of the largest.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.instructions import Collective, Compute, Instruction, Transfer, Wait
from lib_dlhpc.program.pass_contention import Added, Message, crossing

if TYPE_CHECKING:
    from lib_dlhpc.program.program import Prices


class Span(NamedTuple):
    """What lies between two instructions of other streams: the number of the span, and its exchanges' kind."""

    number: int
    kind: str


# there are many, of few numbers: equal ones are one object
_span = lru_cache(maxsize=1 << 13)(Span)


class Run(NamedTuple):
    """Work before the first exchange, between them, and after the last, and the exchanges, in s."""

    head: Any  # a number, or (1, variants, 1)
    middle: Any
    tail: Any
    messages: float
    bytes: float  # B that a rank exchanges
    kind: str  # of the first exchange


class Post(NamedTuple):
    """An instruction of another stream, and how long it takes if all ranks start together, in s.

    added: of that, what exchanges that meet it add.
    """

    what: Collective | Transfer
    seconds: float
    bytes: float
    added: float = 0.0


class Queue(NamedTuple):
    """What a pass posts, if it waits for nothing before its end.

    spans: in order. before: how many of them come before each instruction that is posted. waits: whether it waits for
    all of these in the end.
    """

    spans: NDArray[np.int64]
    before: NDArray[np.int64]
    waits: bool


Folded: TypeAlias = Run | Post | Wait
Piece: TypeAlias = Span | Collective | Transfer | Wait
# What one rank does, the s of each span, and those of each instruction of another stream in its order.
Times: TypeAlias = tuple[list[Piece], list[float], list[float]]


class Shape:
    """A sequence of instructions cut at those of other streams, its work and exchanges as indices to sum by.

    Collectives that cost the same are one in `priced`, moves that are equal one in `moves`.
    """

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.pieces: list[Piece] = []
        self.priced: list[Collective] = []
        self.moves: Counter[Transfer] = Counter()
        self.numbers = array("l")  # which of `priced` each exchange is
        self.spans_of = array("l")  # and its span
        self.posts = list[int]()  # which of `priced` the collectives on other streams are
        self.spans = 0
        self.full: list[int] = []  # spans with anything in them
        # The layer of each computation, and the run of them in which it is, by phase.
        self._spent: dict[str, array[int]] = defaultdict(partial(array, "l"))
        # Where the time of each run counts; a span has three slots: head, middle, tail.
        self._runs = array("l")
        self._known: dict[tuple[object, ...], int] = {}
        # The same by identity: most instructions are in the sequence several times.
        self._numbers: dict[int, int] = {}
        self._cut(instructions)
        spent = {phase: np.array(each).reshape(-1, 2) for phase, each in self._spent.items()}
        runs = np.array(self._runs, np.int64)
        del self._known, self._numbers, self._spent, self._runs
        self.layers = {phase: each[:, 0].copy() for phase, each in spent.items()}
        self.slots = {phase: runs[each[:, 1]] for phase, each in spent.items()}

    def _cut(self, instructions: Sequence[Instruction]) -> None:
        # Of the current span: the kind of its first exchange, its exchanges, and whether it computes nothing.
        kind, met, empty = "", 0, True
        spent, runs, number_of = self._spent, self._runs, self._numbers
        for op in instructions:
            if type(op) is Compute:
                layer, phase = op
                spent[phase].extend((layer, len(runs)))
                empty = False
            elif type(op) is Collective and not op.stream:
                runs.append(3 * self.spans + (1 if met else 0))
                number = number_of.get(id(op))
                self.numbers.append(self._number(op) if number is None else number)
                self.spans_of.append(self.spans)
                kind, met = kind or op.kind, met + 1
            else:
                self._end(kind, met, empty)
                kind, met, empty = "", 0, True
                self.pieces.append(op)  # type: ignore[arg-type]
                if type(op) is Collective:
                    self.posts.append(self._number(op))
                elif type(op) is Transfer:
                    self.moves[op] += 1
        self._end(kind, met, empty)

    def _end(self, kind: str, met: int, empty: bool) -> None:
        self._runs.append(3 * self.spans + (2 if met else 0))
        if met or not empty:
            self.full.append(self.spans)
        self.pieces.append(_span(self.spans, kind))
        self.spans += 1

    def _number(self, what: Collective) -> int:
        number = self._numbers.get(id(what))
        if number is None:
            key = (*what[:6], what.algorithm, what.ranked)
            number = self._numbers[id(what)] = self._known.setdefault(key, len(self.priced))
            if number == len(self.priced):
                self.priced.append(what)
        return number

    @cached_property
    def counts(self) -> list[int]:
        """How often each of `priced` occurs."""
        every = np.array([*self.numbers, *self.posts], np.int64)
        counts: list[int] = np.bincount(every, minlength=len(self.priced)).tolist()
        return counts

    @cached_property
    def messages(self) -> tuple[tuple[Collective | Transfer, int], ...]:
        """How often each collective and move occurs; those that cost the same are one."""
        return (*zip(self.priced, self.counts, strict=True), *self.moves.items())

    @cached_property
    def compact(self) -> list[Piece]:
        """The pieces without empty spans, for ranks that are all alike."""
        full = set(self.full)
        return [
            piece for piece in self.pieces if not isinstance(piece, Span) or piece.number in full
        ]

    @cached_property
    def queue(self) -> "Queue | None":
        """The same, if nothing is waited for before the end and all is posted on one stream."""
        first, waits = (self.compact, any(isinstance(op, Wait) for op in self.compact[-1:]))
        inside = first[:-1] if waits else first
        streams = {op.stream for op in first if not isinstance(op, Span)}
        if len(streams) > 1 or any(isinstance(op, Wait) for op in inside):
            return None
        spans = [op.number for op in inside if isinstance(op, Span)]
        is_span = np.array([isinstance(op, Span) for op in inside], bool)
        return Queue(np.array(spans, np.int64), np.cumsum(is_span)[~is_span], waits)

    @cached_property
    def firsts(self) -> dict[str, NDArray[np.int64]]:
        """Where the computations of a slot begin, by phase; they follow one another."""
        return {
            phase: np.flatnonzero(np.diff(slots, prepend=-1)) for phase, slots in self.slots.items()
        }

    def work_of_lanes(self, prices: "Prices", lanes: Sequence[int]) -> Floats:
        """Return the seconds of work of each span, with prices of several lanes, (spans, lanes); lanes: which."""
        total, numbers = np.zeros((3 * self.spans, len(lanes))), [*lanes]
        for phase, layers in self.layers.items():
            each, first = getattr(prices, phase)[numbers][:, layers].T, self.firsts[phase]
            total[self.slots[phase][first]] += np.add.reduceat(each, first, axis=0)
        return total.reshape(-1, 3, len(lanes)).sum(axis=1)

    def work(self, prices: "Prices") -> Floats:
        """Return the seconds of work of each span, (spans, 3)."""
        total = np.zeros(3 * self.spans)
        for phase, layers in self.layers.items():
            total += np.bincount(self.slots[phase], getattr(prices, phase)[layers], len(total))
        return total.reshape(-1, 3)

    def seconds(self, prices: "Prices") -> Floats:
        """Return the seconds and the bytes of each of `priced`, (2, priced)."""
        return np.array([prices.priced(exchange)[1:] for exchange in self.priced]).reshape(-1, 2).T

    def exchanged(self, seconds: Floats) -> Floats:
        """Return the seconds and the bytes of the exchanges of each span, (2, spans); seconds: those of `priced`."""
        if not self.numbers:
            return np.zeros((2, self.spans))
        exchange_seconds = seconds[:, self.numbers]
        return np.stack([np.bincount(self.spans_of, row, self.spans) for row in exchange_seconds])

    def timed(self, prices: "Prices", factor: float, message: Message | None = None) -> Times:
        """Return what one rank does, in s; factor: of compute time. message: on its way when the pass begins."""
        work, costs = self.work(prices).sum(axis=1), self.seconds(prices)
        talk, posts = self.exchanged(costs)[0], self.posted(costs[0])
        added = self.crossing(prices, work + talk, posts, message)
        if added is not None:
            talk, posts = talk + added.spans, posts + added.posts
        return self.compact, (factor * work + talk).tolist(), posts.tolist()

    def posted(self, costs: Floats) -> Floats:
        """Return the seconds of each exchange and move that is posted; costs: the seconds of `priced`."""
        posts = costs[self.posts]
        if not self.moves:
            return posts
        rest = iter(posts)
        every = (each for each in self.compact if isinstance(each, Collective | Transfer))
        return np.array([e.seconds if isinstance(e, Transfer) else next(rest) for e in every])

    def crossing(
        self,
        prices: "Prices",
        spans: Floats,
        posts: Floats,
        message: Message | None = None,
        lane: int = 0,
    ) -> Added | None:
        """Return what exchanges that meet add to each other, see pass_contention.py; spans, posts: s of each alone."""
        if not self.priced or (len(self.streams) == 1 and message is None):
            return None
        busy = [prices.busy(what, lane) for what in self.priced]
        return crossing(self, busy, spans, posts, message and message.active(lane))

    @cached_property
    def streams(self) -> list[set[int]]:
        """Which of `priced` are on each stream."""
        found = defaultdict[str, set[int]](set)
        found[""].update(self.numbers)
        posted = (op for op in self.compact if isinstance(op, Collective))
        for number, op in zip(self.posts, posted, strict=True):
            found[op.stream].add(number)
        return [op for op in found.values() if op]


def fold(
    shapes: Sequence[Shape], prices: "Sequence[Prices]", message: Message | None = None
) -> Iterator[Folded]:
    """Yield a block in s; shapes, prices: of each variant. message: on its way when it begins."""
    work = np.stack([shape.work(price) for shape, price in zip(shapes, prices, strict=True)])
    costs = [shape.seconds(price) for shape, price in zip(shapes, prices, strict=True)]
    talk = np.stack([shape.exchanged(cost) for shape, cost in zip(shapes, costs, strict=True)])
    posted = alone = shapes[0].posted(costs[0][0])
    for number, (shape, price) in enumerate(zip(shapes, prices, strict=True)):
        spans = work[number].sum(axis=1) + talk[number, 0]
        added = shape.crossing(price, spans, shape.posted(costs[number][0]), message)
        if added is not None:
            talk[number, 0] += added.spans
            posted = posted + added.posts if not number else posted
    posts = zip(posted.tolist(), (posted - alone).tolist(), strict=True)
    sizes = iter(costs[0][1, shapes[0].posts].tolist())
    messages, sent = talk.max(axis=0).tolist()
    does = (work.sum(axis=(0, 2)) + talk[:, 0].sum(axis=0) > 0).tolist()
    alike = len(shapes) == 1
    thirds: Any = work[0].tolist() if alike else np.moveaxis(work, 0, 2)[..., None, :, None]
    for index, piece in enumerate(shapes[0].compact if alike else shapes[0].pieces):
        if isinstance(piece, Span):
            number, kind = piece
            if does[number]:
                kind = kind or ("" if alike else _kind(shapes, index))
                head, middle, tail = thirds[number]
                yield Run(head, middle, tail, messages[number], sent[number], kind)
        elif isinstance(piece, Collective):
            seconds, more = next(posts)
            yield Post(piece, seconds, next(sizes), more)
        elif isinstance(piece, Transfer):
            yield Post(piece, next(posts)[0], piece.bytes)
        else:
            yield piece


def _kind(shapes: Sequence[Shape], post: int) -> str:
    """Return the kind of what a span exchanges in any variant."""
    kinds = (getattr(shape.pieces[post], "kind", "") for shape in shapes[1:])
    return next((kind for kind in kinds if kind), "")
