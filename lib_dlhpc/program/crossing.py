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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.program.instructions import Collective, Move, Wait

if TYPE_CHECKING:
    from lib_dlhpc.program.fold import Shape

Floats = NDArray[np.float64]
SENT = "sent"  # the stream of a message between stages
NONE = np.zeros(3)  # links that a move keeps busy
NEGLIGIBLE = 1e-12  # of an exchange, by rounding


class Added(NamedTuple):
    """Seconds by which each span, and each posted exchange or move, takes longer."""

    spans: Floats
    posts: Floats


def crossing(
    shape: "Shape", busy: Floats, spans: Floats, posts: Floats, sent: "_Active | None" = None
) -> Added | None:
    """Return what exchanges of a pass that finds all streams free add to each other, None if none meet.

    busy: s for which each of `shape.priced` keeps links busy, (priced, kinds of links). spans, posts: s of each span,
    and of each exchange and move that is posted, alone. sent: the message that is on its way when the pass begins.
    """
    if sent is None and not _may_meet(shape, busy):
        return None
    of_spans = _busy_of_spans(shape, busy, spans).tolist()
    added, walk = Added(np.zeros_like(spans), np.zeros_like(posts)), _Walk()
    if sent is not None:
        walk.streams[SENT] = deque([sent])
    number, of_posts = 0, iter(shape.posts)
    for each in shape.compact:
        if isinstance(each, Collective | Move):
            seconds = float(posts[number])
            keeps = NONE if isinstance(each, Move) else busy[next(of_posts)] / (seconds or 1.0)
            one = _Active(seconds, keeps.tolist(), added.posts, number, each.key)
            walk.streams.setdefault(each.stream, deque()).append(one)
            number += 1
        elif isinstance(each, Wait):
            walk.wait(each)
        else:
            at = each.number
            walk.work(_Active(float(spans[at]), of_spans[at], added.spans, at))
    return added


def _may_meet(shape: "Shape", busy: Floats) -> bool:
    """Whether exchanges of two streams use links of one kind."""
    streams = {"": busy[sorted(set(shape.numbers))].sum(axis=0) > 0}
    posted = (each for each in shape.compact if isinstance(each, Collective))
    for number, each in zip(shape.posts, posted, strict=True):
        streams[each.stream] = streams.get(each.stream, False) | (busy[number] > 0)
    return bool((np.sum([*streams.values()], axis=0) > 1).any())


def _busy_of_spans(shape: "Shape", busy: Floats, spans: Floats) -> Floats:
    """Return the part of each span for which its exchanges keep links busy, (spans, kinds)."""
    found = np.zeros((len(spans), busy.shape[1]))
    if shape.numbers:
        np.add.at(found, np.array(shape.spans_of), busy[shape.numbers])
    return found / np.where(spans > 0, spans, 1.0)[:, None]


class Message(NamedTuple):
    """A message between stages that leaves its node while the next pass begins.

    seconds: for which it occupies its path. slower: how many times as long as NICs links between switches take.
    """

    seconds: Any
    slower: float

    def active(self, lane: int) -> "_Active":
        """Return the message as what is at work; its own delay is not counted."""
        seconds = np.ravel(self.seconds)
        busy = [0.0, 1 / self.slower, float(self.slower > 1)]
        return _Active(float(seconds[lane % len(seconds)]), busy, np.zeros(1), 0)


class _Active:
    """What is at work: the seconds left of it alone, how busy it keeps links, and where delays count."""

    __slots__ = ("added", "at", "busy", "key", "left")

    def __init__(
        self, left: float, busy: list[float], added: Floats, at: int, key: str = ""
    ) -> None:
        self.left, self.busy, self.added, self.at, self.key = left, busy, added, at, key


class _Walk:
    """What each stream has not done yet, the first of which is at work."""

    def __init__(self) -> None:
        self.streams: dict[str, deque[_Active]] = {}

    def work(self, span: _Active) -> None:
        """Let a span of the compute stream pass."""
        while span.left > 0:
            self._advance(span)

    def wait(self, what: Wait) -> None:
        """Let the compute stream stand until what it waits for is done."""
        queue = self.streams.get(what.stream, deque())
        while any(not what.key or each.key == what.key for each in queue):
            self._advance(None)

    def _advance(self, span: _Active | None) -> None:
        """Go on until the first of what is at work is done."""
        heads = [queue[0] for queue in self.streams.values() if queue]
        active = heads if span is None else [span, *heads]
        if len(active) == 1:
            active[0].left = 0.0
        else:
            _meet(active)
        for queue in self.streams.values():
            while queue and not queue[0].left:
                queue.popleft()


def _meet(active: list[_Active]) -> None:
    """Let several go on until the first is done."""
    near, nics, far = (sum(kind) for kind in zip(*(one.busy for one in active), strict=True))
    slower = [
        1 + max(a * (near - a), b * (nics - b), c * (far - c))
        for a, b, c in (one.busy for one in active)
    ]
    passed = min(each.left * slow for each, slow in zip(active, slower, strict=True))
    for each, slow in zip(active, slower, strict=True):
        each.added[each.at] += passed * (1 - 1 / slow)
        done = passed / slow
        each.left = each.left - done if each.left > done * (1 + NEGLIGIBLE) else 0.0
