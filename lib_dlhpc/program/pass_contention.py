"""Exchanges of one pass that use the same links at once: each slows the others down.

A pass posts exchanges on streams of their own (gathers of weights, gradients, positions) while its compute stream goes
on, with exchanges in between. Those that use the same links share them fairly. What is active progresses at the rate

    1 / (1 + max over kinds of links of (busy_i * sum of busy_j))    over all others j that are active

where `busy` is the part of its time for which an exchange alone keeps links of a kind busy: those of devices, NICs,
links between switches. Of a span of the compute stream that is the part that its exchanges take; arithmetic and latency
leave links to others. The message that a stage has sent meets what its next pass exchanges. So two exchanges that need
the same links all the time take as long together as one after the other, and no link carries more than it can.

Source of fair shares: Bertsekas & Gallager, "Data Networks" (1992), section 6.5.2. Messages that meet now and then are
taken to meet as often as if they were independent.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.instructions import Collective, Transfer, Wait

if TYPE_CHECKING:
    from lib_dlhpc.program.fold import Shape

Busy: TypeAlias = tuple[float, float, float]  # of each kind of links
SENT = "sent"  # the stream of a message between stages
NONE = 0.0, 0.0, 0.0  # links that a move keeps busy
KINDS, SWITCHES = len(NONE), 2
NEGLIGIBLE = 1e-12  # of an exchange, by rounding
POSTED = Collective, Transfer


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
    if not _may_meet(shape, busy, sent):
        return None
    walk = _Walk(sent)
    computed = [_Active(*piece) for piece in _alone(shape, busy, spans)]
    posted = [*_posted(shape, busy, posts.tolist())]
    coming = iter(posted)
    for piece in shape.compact:
        if isinstance(piece, Wait):
            walk.wait(piece)
        elif isinstance(piece, POSTED):
            walk.post(piece.stream, next(coming))
        else:
            walk.work(computed[piece.number])
    return Added(
        *(
            np.array([activity.delay for activity in activities])
            for activities in (computed, posted)
        )
    )


def _may_meet(shape: "Shape", busy: Sequence[Busy], sent: "_Active | None") -> bool:
    """Whether exchanges of two streams, or the message, use links of one kind."""
    uses = [
        [any(busy[n][kind] for n in stream) for kind in range(KINDS)] for stream in shape.streams
    ]
    if sent is not None:
        uses.append([*map(bool, sent.busy)])
    return any(sum(use[kind] for use in uses) > 1 for kind in range(KINDS))


def _alone(shape: "Shape", busy: Sequence[Busy], spans: Floats) -> Iterable[tuple[float, Busy]]:
    """Return s of each span, and the part of it for which its exchanges keep links of each kind busy."""
    if not shape.numbers:
        return zip(spans.tolist(), [NONE] * len(spans), strict=True)
    seconds, rows = np.where(spans > 0, spans, 1.0), np.array(busy)[shape.numbers].T
    kinds = [np.bincount(shape.spans_of, row, len(spans)) / seconds for row in rows]
    return zip(spans.tolist(), zip(*(kind.tolist() for kind in kinds), strict=True), strict=True)


def _posted(shape: "Shape", busy: Sequence[Busy], seconds: Sequence[float]) -> "Iterator[_Active]":
    """Yield each exchange and move that is posted; seconds: of each."""
    numbers, known = iter(shape.posts), dict[int, Busy]()
    each = (piece for piece in shape.compact if isinstance(piece, POSTED))
    for what, left in zip(each, seconds, strict=True):
        if isinstance(what, Transfer):
            yield _Active(left, NONE, what.key)
            continue
        number = next(numbers)
        if number not in known:
            a, b, c = busy[number]
            alone = left or 1.0
            known[number] = a / alone, b / alone, c / alone
        yield _Active(left, known[number], what.key)


class Message(NamedTuple):
    """A message between stages that leaves its node while the next pass begins.

    seconds: for which it occupies its path. slower: how many times as long as NICs links between switches take.
    """

    seconds: Any
    slower: float

    def active(self, lane: int) -> "_Active":
        """Return the message as an activity; its own delay is not counted."""
        seconds = np.ravel(self.seconds)
        busy = 0.0, 1 / self.slower, float(self.slower > 1)
        return _Active(float(seconds[lane % len(seconds)]), busy)


class _Active:
    """An activity: its remaining seconds if alone, how busy it keeps links, and its delay so far."""

    __slots__ = ("busy", "delay", "key", "left")

    def __init__(self, left: float, busy: Busy, key: str = "") -> None:
        self.left, self.busy, self.key, self.delay = left, busy, key, 0.0


class _Walk:
    """The remaining activities of each stream, the first of which is active."""

    def __init__(self, sent: _Active | None) -> None:
        self.streams = defaultdict[str, deque[_Active]](deque)
        if sent is not None:
            self.streams[SENT].append(sent)

    def post(self, stream: str, what: _Active) -> None:
        """Append what is posted to its stream."""
        self.streams[stream].append(what)

    def work(self, span: _Active) -> None:
        """Let a span of the compute stream pass."""
        while span.left and (posted := self._at_work()):
            self._advance([span, *posted])

    def wait(self, what: Wait) -> None:
        """Let the compute stream stand until what it waits for is done."""
        queue = self.streams[what.stream]
        behind = 0
        if what.key:
            for activity in reversed(queue):
                if activity.key == what.key:
                    break
                behind += 1
        while len(queue) > behind:
            self._advance(self._at_work())

    def _at_work(self) -> list[_Active]:
        return [queue[0] for queue in self.streams.values() if queue]

    def _advance(self, active: list[_Active]) -> None:
        """Advance until the first active one is done."""
        if len(active) == 1:
            active[0].left = 0.0
        else:
            _meet(active)
        for queue in self.streams.values():
            while queue and not queue[0].left:
                queue.popleft()


def _meet(active: list[_Active]) -> None:
    """Advance several until the first is done."""
    if len(active) == 2:
        (a, b, c), (d, e, f) = active[0].busy, active[1].busy
        slow = 1 + max(a * d, b * e, c * f)
        slower: tuple[float, ...] = slow, slow
        passed = slow * min(active[0].left, active[1].left)
    else:
        slower = _slower([activity.busy for activity in active])
        passed = min([activity.left * slow for activity, slow in zip(active, slower, strict=True)])
    for activity, slow in zip(active, slower, strict=True):
        done = passed / slow
        activity.delay += passed - done
        activity.left = activity.left - done if activity.left > done * (1 + NEGLIGIBLE) else 0.0


def _slower(busy: list[Busy]) -> tuple[float, ...]:
    """Return how many times as long each takes beside the others."""
    near, nics, far = map(sum, zip(*busy, strict=True))
    return tuple([1 + max(a * (near - a), b * (nics - b), c * (far - c)) for a, b, c in busy])
