"""A block folded: what lies between two instructions of other streams becomes work and messages in four numbers.

Ranks that have exchanged once are in step, so what comes between two exchanges takes as long as it takes the
slowest of them: the first exchange ends when the last rank has done its `head`, and

    end = latest(start + head) + latest(middle) + messages + tail

is exact where all ranks have equal parts. Where parts differ, as at the edges of an image, the largest sum stands
for the sum of the largest.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.program.instructions import Collective, Compute, Instruction, Move, Wait

if TYPE_CHECKING:
    from lib_dlhpc.program.program import Prices

Floats = NDArray[np.float64]


class Span(NamedTuple):
    """What lies between two instructions of other streams: the number of the span, and its exchanges' kind."""

    number: int
    kind: str


class Run(NamedTuple):
    """Work before the first exchange, between them, and after the last, and the exchanges, in s."""

    head: Any  # a number, or (1, variants, 1)
    middle: Any
    tail: Any
    messages: float
    bytes: float  # B that a rank exchanges
    kind: str  # of the first exchange


class Post(NamedTuple):
    """An instruction of another stream, and how long it takes if all ranks start together, in s."""

    what: Collective | Move
    seconds: float
    bytes: float


Folded: TypeAlias = Run | Post | Wait


class Shape:
    """A sequence of instructions cut at those of other streams, its work and exchanges as indices to sum by."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.pieces: list[Span | Collective | Move | Wait] = []
        # The layer of each computation, and where its time counts, 3 slots a span: head, middle, tail.
        self.layers: dict[str, array[int]] = defaultdict(partial(array, "l"))  # by phase
        self.slots: dict[str, array[int]] = defaultdict(partial(array, "l"))
        self.exchanges: list[Collective] = []
        self.spans_of = array("l")  # the span of each exchange
        self.spans = 0
        self.full: list[int] = []  # spans with anything in them
        for each in _cut(instructions):
            self.pieces.append(self._span(each) if isinstance(each, list) else each)

    def _span(self, run: list[Compute | Collective]) -> Span:
        met = [at for at, each in enumerate(run) if isinstance(each, Collective)]
        number, kind = self.spans, ""
        for at, each in enumerate(run):
            if isinstance(each, Compute):
                part = 0 if not met or at < met[0] else 1 if at < met[-1] else 2
                self.layers[each.phase].append(each.layer)
                self.slots[each.phase].append(3 * number + part)
            else:
                kind = kind or each.kind
                self.exchanges.append(each)
                self.spans_of.append(number)
        self.spans += 1
        if run:
            self.full.append(number)
        return Span(number, kind)

    @cached_property
    def compact(self) -> list[Span | Collective | Move | Wait]:
        """The pieces without empty spans, for ranks that are all alike."""
        full = set(self.full)
        return [one for one in self.pieces if not isinstance(one, Span) or one.number in full]

    def work(self, prices: "Prices") -> Floats:
        """Return the seconds of work of each span, (spans, 3)."""
        total = np.zeros(3 * self.spans)
        for phase, layers in self.layers.items():
            seconds = getattr(prices, phase)[np.asarray(layers)]
            total += np.bincount(self.slots[phase], seconds, 3 * self.spans)
        return total.reshape(-1, 3)

    def exchanged(self, prices: "Prices") -> Floats:
        """Return the seconds and the bytes of the exchanges of each span, (2, spans)."""
        if not self.exchanges:
            return np.zeros((2, self.spans))
        priced = [prices.priced(each)[1:] for each in self.exchanges]
        columns = np.array(priced).T
        return np.stack([np.bincount(self.spans_of, each, self.spans) for each in columns])


def fold(shapes: Sequence[Shape], prices: "Sequence[Prices]") -> tuple[Folded, ...]:
    """Return a block in s; shapes, prices: of each variant."""
    work = np.stack([each.work(price) for each, price in zip(shapes, prices, strict=True)])
    talk = np.stack([each.exchanged(price) for each, price in zip(shapes, prices, strict=True)])
    messages, sent = talk.max(axis=0).tolist()
    does = (work.sum(axis=(0, 2)) + talk[:, 0].sum(axis=0) > 0).tolist()
    one, priced = len(shapes) == 1, prices[0].priced
    thirds: Any = work[0].tolist() if one else np.moveaxis(work, 0, 2)[..., None, :, None]
    found: list[Folded] = []
    for at, piece in enumerate(shapes[0].compact if one else shapes[0].pieces):
        if isinstance(piece, Span):
            number, kind = piece
            if does[number]:
                kind = kind or ("" if one else _kind(shapes, at))
                head, middle, tail = thirds[number]
                found.append(Run(head, middle, tail, messages[number], sent[number], kind))
        elif isinstance(piece, Wait):
            found.append(piece)
        elif isinstance(piece, Move):
            found.append(Post(piece, piece.seconds, piece.bytes))
        else:
            _, seconds, size = priced(piece)
            found.append(Post(piece, seconds, size))
    return tuple(found)


def _kind(shapes: Sequence[Shape], at: int) -> str:
    """Return the kind of what a span exchanges in any variant."""
    kinds = (getattr(each.pieces[at], "kind", "") for each in shapes[1:])
    return next((kind for kind in kinds if kind), "")


def _cut(instructions: Sequence[Instruction]) -> Iterator[Any]:
    """Yield the instructions of other streams, and lists of what lies between them."""
    run: list[Instruction] = []
    for each in instructions:
        if isinstance(each, Compute) or (isinstance(each, Collective) and not each.stream):
            run.append(each)
        else:
            yield run
            run = []
            yield each
    yield run
