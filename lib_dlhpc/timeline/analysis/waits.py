"""Who stands still for whom: late senders, late receivers, and waits at collectives.

The patterns are Scalasca's (M. Geimer et al., "The Scalasca performance toolset architecture", Concurrency
and Computation: Practice and Experience 22(6), 2010, sections on wait-state analysis):

    late sender         a receive begins before its send does: until the send begins
    late receiver       a send stands still because its receive has not begun: until the receive begins
    wait at collective  n-to-n: until the last member joins; 1-to-n: until the root does; n-to-1: the
                        root, until the last of the others has joined (Scalasca stops at the first)

No wait is longer than the call it is in. What a late rank had itself stood still for others since it last met the
one that waits, or since its last n-to-n collective, is not its own doing: `blame` leaves it out, after
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
from lib_dlhpc.timeline.table import Timeline


@dataclass(frozen=True, eq=False)
class Waits:
    """One entry a call in which somebody may have waited: the row that waits, the row it waits for, and s."""

    row: Rows
    cause: Rows
    seconds: Floats


@dataclass(frozen=True, eq=False)
class AllWaits:
    """Waits of each kind of a table, the seconds each rank waits, (ranks,) by kind, and who was held up when."""

    late_sender: Waits
    late_receiver: Waits
    collective: Waits
    per_rank: dict[str, Floats]
    held: "Held"


def waits(found: Calls, busy: Busy) -> AllWaits:
    """Return what everybody waits for, of calls put together."""
    table, sends, receives = found.table, found.sends, found.receives
    sent, came = table.start[sends], table.start[receives]
    late = np.clip(np.minimum(sent, table.stop[receives]) - came, 0.0, None)
    unmet = np.where(table.stop[sends] > came, np.clip(came - sent, 0.0, None), 0.0)
    at, cause, seconds = _collectives(found, busy)
    rooted = table.peer[at] == table.rank[at]  # n-to-1 is where a root can wait
    held = Held(found, [(receives, late), (sends, unmet), (at[rooted], seconds[rooted])])
    per_rank = {
        "late sender": _by_rank(found, receives, late),
        "late receiver": _by_rank(found, sends, unmet),
        "wait at collective": _by_rank(found, at, seconds),
    }
    return AllWaits(
        Waits(receives, sends, late),
        Waits(sends, receives, unmet),
        Waits(at, cause, seconds),
        per_rank,
        held,
    )


@dataclass(frozen=True, eq=False)
class Blame:
    """What of waits is the doing of those waited for: s of each, and how much later than the waiting one it came.

    lag is less than 0 where the one that waits came later itself.
    """

    direct: Floats
    lag: Floats


def blame(found: Calls, late: AllWaits, chosen: Rows, of_sender: bool) -> Blame:
    """Return the blame for messages, chosen by their place in sends; all of the pairs that are chosen from."""
    table, sends, receives = found.table, found.sends[chosen], found.receives[chosen]
    seconds = (late.late_sender if of_sender else late.late_receiver).seconds[chosen]
    gap = table.start[sends] - table.start[receives]
    if not of_sender:
        # A send that returned at once tells nothing of when its receive began.
        blocked = table.stop[sends] > table.start[receives]
        gap = np.where(blocked, -gap, np.minimum(-gap, 0.0))
    own = late.held.since_they_met(table, sends, receives, of_sender)
    return Blame(np.clip(seconds - own, 0.0, None), gap - own)


def arrivals(found: Calls, late: AllWaits) -> Floats:
    """Return when each member joined its collective, less what it had been held up since the last n-to-n, s."""
    return found.table.start[found.members] - late.held.since_collective(found.members)


class Held:
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

    def since_they_met(
        self, table: Timeline, sends: Rows, receives: Rows, of_sender: bool
    ) -> Floats:
        """Return the seconds that one side of each message stood still since both sides last met."""
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
