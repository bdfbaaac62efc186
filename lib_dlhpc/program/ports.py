"""Ports: messages between stages that share links, each at the rate that max-min fairness gives it.

A line is what one stage sends another, one message after the other. Messages of two lines that use the same link, for
parts u and v of the time that each takes alone, slow each other down while both are on their way: each ends u v times
the time they meet later, and by the link where that is most. The path of a program executes its calls by what depends
on what, not by time, so a message may have been received when one that it meets is sent. What this one adds to it, the
next message of its line takes longer: in a pipeline the same messages meet again and again.

Where messages take less than any pass between them they do not meet, and each occupies its port as in rank_path.py.

Source of fair shares: Bertsekas & Gallager, "Data Networks" (1992), section 6.5.2.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.program.rounds import sections
from lib_dlhpc.schedules.pipeline import Pipeline

# Messages of a line that those of others may still meet. Of 150 pipelines drawn at random, more change none.
# With 4, two change by up to 0.5%.
KEPT = 6
# Of two lines on one link: where that is among the links of each, and u v.
Link: TypeAlias = tuple[int, int, float]


class SharedLinks(NamedTuple):
    """What lines use together. links: of each line, how many it shares. others: of each, the lines that it may meet."""

    links: tuple[int, ...]
    others: tuple[tuple[tuple[int, tuple[Link, ...]], ...], ...]


class Lines(NamedTuple):
    """The lines of a pipeline.

    far: how many lines there are, if stages that do not send to each other share links, else 0. found: which lines do,
    if microbatches go both ways at a time, or one way and then the other.
    """

    far: int
    found: Callable[[bool], SharedLinks | None]

    def meets(self, schedule: str) -> SharedLinks | None:
        """Return which lines share links, if any."""
        return self.found(schedule == "gpipe")


def line_of(place: int, boundary: int) -> int:
    """Return the line of a message that one of three places or more sends across the boundary behind a place."""
    return 2 * place + (boundary != place)


def are_long(busy: Floats, forward: Floats, backward: Floats, far: int) -> Any:
    """Whether messages may meet: the longest takes longer than the shortest pass forward. Or, if far, one message of
    each line, one after another, would take longer than the shortest passes of a microbatch, both ways.

    Each is of all passes of a microbatch, s, (passes, ...). far: see Lines.
    """
    shortest = forward.min(axis=0)
    if far:
        shortest = np.minimum(shortest, (forward + backward).min(axis=0) / far)
    return busy.max(axis=0) > shortest


def in_turn(pipe: Pipeline) -> Iterator[int]:
    """Yield the place of each call in the order in which `Walk` executes them."""
    return (row[0] for rows, times in sections(pipe) for _ in range(times) for row in rows)


class _Sent:
    """A message of a line: when it begins, ends if it meets none, and ends; s by which it is late, by link, or none."""

    __slots__ = ("alone", "begin", "end", "late", "line")

    def __init__(self, line: int) -> None:
        self.line, self.late = line, list[Any]()
        self.begin: Any = -np.inf
        self.alone, self.end = self.begin, self.begin


class Ports:
    """The messages that are on their way; times are floats, or arrays with an element for each rank of a stage."""

    def __init__(self, meets: SharedLinks, one: bool = True) -> None:
        (self.links, self.others), self.one = meets, one
        self.maximum: Any = max if one else np.maximum
        self.minimum: Any = min if one else np.minimum
        # The last messages of each line, newest first; the next takes the place of the oldest.
        self.sent = [
            deque(_Sent(line) for _ in range(KEPT if many else 1))
            for line, many in enumerate(meets.links)
        ]
        self.until: list[Any] = [-np.inf] * len(meets.links)  # no message of a line ends later
        self.ahead: dict[int, list[Any]] = {}  # s by which the next message is late, by link

    def begin(self, line: int, ready: Any) -> Any:
        """Return when a message begins that is ready."""
        return self.maximum(ready, self.sent[line][0].end)

    def send(self, line: int, begin: Any, busy: Any) -> Any:
        """Return by how much a message is late that begins."""
        sent, one, until = self.sent[line], self.one, self.until
        sent.rotate()
        new = sent[0]
        new.begin, new.late = begin, []
        new.alone = new.end = begin + busy
        for other, shared in self.others[line]:
            if one and until[other] <= begin:
                continue
            for message in self.sent[other]:
                if one and (message.end <= begin or message.begin >= new.alone):
                    continue
                met = self.minimum(new.alone, message.end) - self.maximum(begin, message.begin)
                if met > 0 if one else (met > 0).any():
                    self._meet(new, message, self.maximum(met, 0.0), shared)
        if one and new.end > until[line]:
            until[line] = new.end
        if not new.late and line not in self.ahead:
            return 0.0
        ahead = self.ahead.pop(line, None)
        late = map(add, *(message or self._none(line) for message in (new.late, ahead)))
        return reduce(self.maximum, late)

    def _none(self, line: int) -> list[Any]:
        return [0.0] * self.links[line]

    def _meet(self, new: _Sent, old: _Sent, met: Any, shared: Sequence[Link]) -> None:
        ahead = self.ahead.setdefault(old.line, self._none(old.line))
        for message in (new, old):
            message.late = message.late or self._none(message.line)
        for mine, its, part in shared:
            more = met * part
            new.late[mine] = new.late[mine] + more
            old.late[its] = old.late[its] + more
            ahead[its] = ahead[its] + more
        for message in (new, old):
            message.end = message.alone + reduce(self.maximum, message.late)
        self.until[old.line] = self.maximum(self.until[old.line], old.end)

    def state(self, clock: Sequence[float]) -> Iterator[float]:
        """Yield what later messages depend on, as times: of messages that have ended, the first clock."""
        now, zero = min(clock), clock[0]
        for line, sent in enumerate(self.sent):
            none = self._none(line)
            for message in sent:
                if message.end <= now:
                    yield from (zero, zero, *(zero for _ in none))
                else:
                    yield from (
                        message.begin,
                        message.alone,
                        *(zero + late for late in message.late or none),
                    )
            yield from (zero + late for late in self.ahead.get(line, none))

    def shift(self, by: float) -> None:
        """Add a constant to all times."""
        for sent in self.sent:
            for message in sent:
                message.begin, message.alone, message.end = (
                    message.begin + by,
                    message.alone + by,
                    message.end + by,
                )
        self.until = [end + by for end in self.until]
