"""Exchanges of one pass that use the same links at once: each slows the others down.

A pass posts exchanges on streams of their own (gathers of weights, gradients, positions) while its compute stream goes
on, with exchanges in between. Those that use the same links share them fairly. What is at work progresses at the rate

    1 / (1 + max over kinds of links of (busy_i * sum of busy_j))    over all others j at work

where `busy` is the part of its time for which an exchange alone keeps links of a kind busy: those of devices, NICs,
links between switches. Of a span of the compute stream that is the part that its exchanges take; arithmetic and latency
leave links to others. The message that a stage has sent meets what its next pass exchanges. So two exchanges that need
the same links all the time take as long together as one after the other, and no link carries more than it can.

Source of fair shares: Bertsekas & Gallager, "Data Networks" (1992), section 6.5.2. Messages that meet now and then are
taken to meet as often as if they were independent.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.program.instructions import Collective, Move, Wait

if TYPE_CHECKING:
    from lib_dlhpc.program.fold import Shape

Floats = NDArray[np.float64]
Busy: TypeAlias = tuple[float, float, float]  # of each kind of links
SENT = "sent"  # the stream of a message between stages
NONE = 0.0, 0.0, 0.0  # links that a move keeps busy
NEGLIGIBLE = 1e-12  # of an exchange, by rounding


class Added(NamedTuple):
    """Seconds by which each span, and each posted exchange or move, takes longer."""

    spans: Floats
    posts: Floats


def crossing(
    shape: "Shape",
    busy: Sequence[Busy],
    spans: Floats,
    posts: Floats,
    sent: "_Active | None" = None,
) -> Added | None:
    """Return what exchanges of a pass that finds all streams free add to each other, None if none meet.

    busy: s for which each of `shape.priced` keeps links of each kind busy. spans, posts: s of each span, and of each
    exchange and move that is posted, alone. sent: the message that is on its way when the pass begins.
    """
    if sent is None and not _may_meet(shape, busy):
        return None
    of_spans, walk = _busy_of_spans(shape, busy, spans), _Walk(sent)
    added = [0.0] * len(spans), [0.0] * len(posts)
    work, seconds, number, of_posts = spans.tolist(), posts.tolist(), 0, iter(shape.posts)
    for each in shape.compact:
        if isinstance(each, Collective | Move):
            keeps = NONE if isinstance(each, Move) else busy[next(of_posts)]
            left = seconds[number]
            a, b, c = (one / (left or 1.0) for one in keeps)
            walk.post(each.stream, _Active(left, (a, b, c), added[1], number, each.key))
            number += 1
        elif isinstance(each, Wait):
            walk.wait(each)
        elif walk.queues:
            at = each.number
            walk.work(_Active(work[at], of_spans[at], added[0], at))
    return Added(*map(np.array, added))


def _may_meet(shape: "Shape", busy: Sequence[Busy]) -> bool:
    """Whether exchanges of two streams use links of one kind."""
    uses = [
        [any(each) for each in zip(*(busy[n] for n in some), strict=True)] for some in shape.streams
    ]
    return any(sum(each) > 1 for each in zip(*uses, strict=True))


def _busy_of_spans(shape: "Shape", busy: Sequence[Busy], spans: Floats) -> list[Busy]:
    """Return the part of each span for which its exchanges keep links of each kind busy."""
    if not shape.numbers:
        return [NONE] * len(spans)
    alone = np.where(spans > 0, spans, 1.0)
    each = np.array(busy)[shape.numbers].T
    kinds = [np.bincount(shape.spans_of, one, len(spans)) / alone for one in each]
    return [*zip(*(one.tolist() for one in kinds), strict=True)]


class Message(NamedTuple):
    """A message between stages that leaves its node while the next pass begins.

    seconds: for which it occupies its path. slower: how many times as long as NICs links between switches take.
    """

    seconds: Any
    slower: float

    def active(self, lane: int) -> "_Active":
        """Return the message as what is at work; its own delay is not counted."""
        seconds = np.ravel(self.seconds)
        busy = 0.0, 1 / self.slower, float(self.slower > 1)
        return _Active(float(seconds[lane % len(seconds)]), busy, [0.0], 0)


class _Active:
    """What is at work: the seconds left of it alone, how busy it keeps links, and where delays count."""

    __slots__ = ("added", "at", "busy", "key", "left")

    def __init__(self, left: float, busy: Busy, added: list[float], at: int, key: str = "") -> None:
        self.left, self.busy, self.added, self.at, self.key = left, busy, added, at, key

    def advance(self, seconds: float, slower: float) -> None:
        """Go on for the work of some seconds alone, which takes longer by the factor 1 + slower."""
        self.added[self.at] += seconds * slower
        self.left = self.left - seconds if self.left > seconds * (1 + NEGLIGIBLE) else 0.0


class _Walk:
    """What each stream has not done yet, the first of which is at work; streams that are free are left out."""

    def __init__(self, sent: _Active | None) -> None:
        self.queues: dict[str, deque[_Active]] = {SENT: deque([sent])} if sent is not None else {}

    def post(self, stream: str, what: _Active) -> None:
        """Append what is posted to its stream."""
        self.queues.setdefault(stream, deque()).append(what)

    def work(self, span: _Active) -> None:
        """Let a span of the compute stream pass."""
        while span.left and self.queues:
            self._advance(span)

    def wait(self, what: Wait) -> None:
        """Let the compute stream stand until what it waits for is done."""
        while any(
            not what.key or each.key == what.key for each in self.queues.get(what.stream, ())
        ):
            self._advance()

    def _advance(self, *span: _Active) -> None:
        """Go on until the first of what is at work is done."""
        active = [*span, *(queue[0] for queue in self.queues.values())]
        if len(active) == 1:
            active[0].left = 0.0
        elif len(active) == 2:
            _meet_one(*active)
        else:
            _meet(active)
        for stream in [*self.queues]:
            queue = self.queues[stream]
            while queue and not queue[0].left:
                queue.popleft()
            if not queue:
                del self.queues[stream]


def _meet_one(one: _Active, other: _Active) -> None:
    """Let two go on until the first is done."""
    (a, b, c), (d, e, f) = one.busy, other.busy
    seconds, slower = min(one.left, other.left), max(a * d, b * e, c * f)
    one.advance(seconds, slower)
    other.advance(seconds, slower)


def _meet(active: list[_Active]) -> None:
    """Let several go on until the first is done."""
    near, nics, far = (sum(kind) for kind in zip(*(one.busy for one in active), strict=True))
    slower = [
        max(a * (near - a), b * (nics - b), c * (far - c))
        for a, b, c in (one.busy for one in active)
    ]
    passed = min(each.left * (1 + more) for each, more in zip(active, slower, strict=True))
    for each, more in zip(active, slower, strict=True):
        each.advance(passed / (1 + more), more)
