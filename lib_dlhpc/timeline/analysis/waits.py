"""Who stands still for whom: late senders, late receivers, and waits at collectives.

The patterns are Scalasca's (M. Geimer et al., "The Scalasca performance toolset architecture", Concurrency
and Computation: Practice and Experience 22(6), 2010, sections on wait-state analysis):

    late sender         a receive begins before its send does: until the send begins
    late receiver       a send stands still because its receive has not begun: until the receive begins
    wait at collective  n-to-n: until the last member joins; 1-to-n: until the root does; n-to-1: the
                        root, until the last of the others has joined (Scalasca stops at the first)

No wait is longer than the call it is in. What a late rank had itself stood still for others since it last met the
one that waits, or since its last n-to-n collective, is not its own doing: `lag` and `direct` leave it out, after
D. Böhme, M. Geimer, F. Wolf, L. Arnold, "Identifying the root causes of wait states in large-scale parallel
applications", ICPP 2010 (in the simplest form: waits in between for messages, and as the root of n-to-1).
"""

from dataclasses import dataclass

import numpy as np

from lib_dlhpc.timeline.analysis.busy import Busy
from lib_dlhpc.timeline.analysis.calls import (
    ALL_FOR_ROOT,
    EACH_FOR_ALL,
    ROOT_FOR_ALL,
    Calls,
    Floats,
    Rows,
    latest,
)


@dataclass(frozen=True, eq=False)
class Waits:
    """One entry a call in which somebody may have waited for somebody.

    row waits, for cause; seconds of waiting; direct: what of them is cause's own doing; lag: how much later
    than the waiting one the other came, less than 0 where it came first (own doing only as well).
    """

    row: Rows
    cause: Rows
    seconds: Floats
    direct: Floats
    lag: Floats


@dataclass(frozen=True, eq=False)
class AllWaits:
    """Waits of each kind of a table, and the seconds each rank waits, (ranks,) by kind."""

    late_sender: Waits
    late_receiver: Waits
    collective: Waits
    per_rank: dict[str, Floats]


def waits(found: Calls, busy: Busy) -> AllWaits:
    """Return what everybody waits for, of calls put together."""
    table, sends, receives = found.table, found.sends, found.receives
    start, stop = table.start, table.stop
    at, cause, seconds = _collectives(found, busy)
    sent, came = start[sends], start[receives]
    late = np.clip(np.minimum(sent, stop[receives]) - came, 0.0, None)
    blocked = stop[sends] > came
    unmet = np.where(blocked, np.clip(came - sent, 0.0, None), 0.0)
    rooted = found.table.peer[at] == table.rank[at]  # n-to-1 is where a root can wait
    held = _Held(found, [(receives, late), (sends, unmet), (at[rooted], seconds[rooted])])
    own_sender = held.since_they_met(found, of_sender=True) if len(sends) else late
    own_receiver = held.since_they_met(found, of_sender=False) if len(sends) else unmet
    sender = Waits(
        receives, sends, late, np.clip(late - own_sender, 0.0, None), sent - came - own_sender
    )
    # A send that returned at once tells nothing of when its receive began.
    gap = np.where(blocked, came - sent, np.minimum(came - sent, 0.0))
    receiver = Waits(
        sends, receives, unmet, np.clip(unmet - own_receiver, 0.0, None), gap - own_receiver
    )
    together = Waits(at, cause, seconds, seconds, np.zeros(len(at)))
    return AllWaits(
        sender,
        receiver,
        together,
        {
            "late sender": _by_rank(found, receives, late),
            "late receiver": _by_rank(found, sends, unmet),
            "wait at collective": _by_rank(found, at, seconds),
        },
    )


def arrivals(found: Calls, late: AllWaits) -> Floats:
    """Return when each member joined its collective, less what it had waited for messages since the last, s."""
    waits = late.collective
    rooted = found.table.peer[waits.row] == found.table.rank[waits.row]
    stood = [(kind.row, kind.seconds) for kind in (late.late_sender, late.late_receiver)]
    held = _Held(found, [*stood, (waits.row[rooted], waits.seconds[rooted])])
    return found.table.start[found.members] - held.since_collective(found.members)


class _Held:
    """How long each rank has stood still, up to every row. waits: rows and their s."""

    def __init__(self, found: Calls, waits: list[tuple[Rows, Floats]]) -> None:
        rows = len(found.table)
        stood = np.zeros(rows)
        for at, seconds in waits:
            np.add.at(stood, at, seconds)
        self.until = np.concatenate([[0.0], np.cumsum(stood)])  # until[i]: before row i
        self.met = np.full(
            rows, -1, np.int32
        )  # the last n-to-n collective before a row, or the first row
        rank = found.table.rank
        first = np.searchsorted(rank, np.arange(found.table.ranks))
        first = first[first < rows]
        self.met[first] = first
        both = found.members[found.pattern[found.group] == EACH_FOR_ALL]
        later = both + 1
        later = later[later < rows]
        self.met[later] = later
        np.maximum.accumulate(self.met, out=self.met)

    def since_collective(self, rows: Rows) -> Floats:
        """Return the seconds since the last n-to-n collective of the rank, up to each of the rows."""
        return np.asarray(self.until[rows] - self.until[self.met[rows]])

    def since_they_met(self, found: Calls, of_sender: bool) -> Floats:
        """Return the seconds that one side of each message stood still since both sides last met."""
        table, sends, receives = found.table, found.sends, found.receives
        mine = sends if of_sender else receives
        low = np.minimum(table.rank[sends], table.rank[receives]).astype(np.int64)
        pair = low * table.ranks + np.maximum(table.rank[sends], table.rank[receives])
        order = np.lexsort((table.start[sends], pair))
        before, after = order[:-1], order[1:]
        same = pair[before] == pair[after]
        before, after = before[same], after[same]
        whose = table.rank[mine[after]]
        last = np.where(table.rank[sends[before]] == whose, sends[before], receives[before])
        begin = self.until[self.met[mine]]
        begin[after] = np.maximum(begin[after], self.until[last + 1])
        return np.asarray(np.clip(self.until[mine] - begin, 0.0, None))


def _collectives(found: Calls, busy: Busy) -> tuple[Rows, Rows, Floats]:
    """Return the members that wait, the row each waits for, and for how long it has nothing else to do."""
    table, members, group = found.table, found.members, found.group
    if not len(members):
        return members, members, np.zeros(0)
    pattern, start = found.pattern[group], table.start[members]
    until, cause = found.last_start.copy(), np.full(found.groups, -1, np.int32)
    last = start == found.last_start[group]
    cause[group[last]] = members[last]
    root = found.is_root
    others = ~root & (pattern == ROOT_FOR_ALL)
    rooted = found.pattern == ROOT_FOR_ALL
    if rooted.any():
        latter = latest(start[others], group[others], found.groups)
        until[rooted] = latter[rooted]
        last = others & (start == latter[group])
        cause[group[last]] = members[last]
    rooted = found.pattern == ALL_FOR_ROOT
    if rooted.any():
        source = root & (pattern == ALL_FOR_ROOT)
        until[rooted] = -np.inf
        until[group[source]] = start[source]
        cause[group[source]] = members[source]
    waiting = (pattern == EACH_FOR_ALL) | (root & (pattern == ROOT_FOR_ALL))
    waiting |= ~root & (pattern == ALL_FOR_ROOT)
    waiting &= (until[group] > start) & (cause[group] >= 0)
    at = members[waiting]
    end = np.minimum(until[group[waiting]], table.stop[at])
    seconds = end - table.start[at]
    if not busy.calls:
        seconds -= busy.work(table.rank[at], table.start[at], end)
    return at, cause[group[waiting]], np.clip(seconds, 0.0, None)


def _by_rank(found: Calls, rows: Rows, seconds: Floats) -> Floats:
    return np.bincount(found.table.rank[rows], weights=seconds, minlength=found.table.ranks)
