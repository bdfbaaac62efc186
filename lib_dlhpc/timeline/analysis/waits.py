"""Wait states: late senders, late receivers, and waits at collectives.

The patterns are Scalasca's (M. Geimer et al., "The Scalasca performance toolset architecture", Concurrency
and Computation: Practice and Experience 22(6), 2010, sections on wait-state analysis):

    late sender         a receive begins before its send does: until the send begins
    late receiver       a send waits because its receive has not begun: until the receive begins
    wait at collective  n-to-n: until the last member joins; 1-to-n: until the root does; n-to-1: the
                        root, until the last of the others has joined (Scalasca stops at the first)

No wait is longer than the call it is in. The time for which a late rank was itself blocked by others is not its own:
`blame` and `own_doing` leave it out, after D. Böhme, M. Geimer, F. Wolf, L. Arnold, "Identifying the root causes
of wait states in large-scale parallel applications", ICPP 2010, in the simplest form:

    a rank is to blame for no more than it came later, by its own doing, than the one that waits for it.

Its own time is what it did not wait for others: for messages, as the root of n-to-1, or at a collective of
only some of the ranks, since the last n-to-n collective that both ranks were in, or, of messages, since the
last message between the two. A collective of all ranks releases all that wait in it together: that holds up
nobody more than others, and from then on it counts anew.
"""

from dataclasses import dataclass

import numpy as np

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.analysis.busy import Busy
from lib_dlhpc.timeline.analysis.calls import (
    ALL_FOR_ROOT,
    EACH_FOR_ALL,
    ROOT_FOR_ALL,
    Calls,
    Rows,
    latest,
)
from lib_dlhpc.timeline.table import Timeline


@dataclass(frozen=True, eq=False)
class Waits:
    """One entry a call in which somebody may have waited: the row that waits, the row it waits for, and s."""

    row: Rows
    cause: Rows
    seconds: Array


@dataclass(frozen=True, eq=False)
class AllWaits:
    """Waits of each kind of a table, the seconds each rank waits, (ranks,) by kind, and who was held up when."""

    late_sender: Waits
    late_receiver: Waits
    collective: Waits
    per_rank: dict[str, Array]
    held: "BlockedTime"


def waits(found: Calls, busy: Busy) -> AllWaits:
    """Return what every rank waits for, of matched calls."""
    table, sends, receives = found.table, found.sends, found.receives
    sent, came = table.start[sends], table.start[receives]
    late = np.clip(np.minimum(sent, table.stop[receives]) - came, 0.0, None)
    unmet = np.where(table.stop[sends] > came, np.clip(came - sent, 0.0, None), 0.0)
    at, cause, seconds = _collectives(found, busy)
    stands = table.peer[at] == table.rank[at]  # n-to-1 is where a root can wait
    stands |= ~found.of_all[number_of(found)[at]]
    released = at[found.pattern[number_of(found)[at]] == ALL_FOR_ROOT]
    still = [(receives, late), (sends, unmet), (at[stands], seconds[stands])]
    held = BlockedTime(found, still, np.concatenate([released, found.members[found.is_root]]))
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

    direct: Array
    lag: Array


def blame(found: Calls, late: AllWaits, chosen: Rows, of_sender: bool) -> Blame:
    """Return the blame for messages, chosen by their place in sends; all of the pairs that are chosen from."""
    table, sends, receives = found.table, found.sends[chosen], found.receives[chosen]
    seconds = (late.late_sender if of_sender else late.late_receiver).seconds[chosen]
    gap = table.start[sends] - table.start[receives]
    if not of_sender:
        # A send that returned at once is no evidence of when its receive began.
        blocked = table.stop[sends] > table.start[receives]
        gap = np.where(blocked, -gap, np.minimum(-gap, 0.0))
    own = late.held.since_they_met(table, sends, receives, of_sender)
    return Blame(np.clip(seconds - own, 0.0, None), gap - own)


def arrivals(found: Calls, late: AllWaits) -> Array:
    """Return when each member joined its collective, less what it had been held up since the last n-to-n, s."""
    return found.table.start[found.members] - late.held.since_collective()


def own_doing(found: Calls, late: AllWaits, blamed: Rows, came: Array) -> Array:
    """Return what of each wait at a collective is the own doing of the member blamed for it, s.

    blamed: of each collective, a place in members, -1: none; came: see `arrivals`.
    """
    table, waits = found.table, late.collective
    whom = blamed[number_of(found)[waits.row]]
    own = np.where(whom >= 0, came[whom] - table.start[waits.row], 0.0)
    return np.asarray(np.clip(own, 0.0, waits.seconds))


def number_of(found: Calls) -> Rows:
    """Return for each row the number of the collective it is of, -1: none."""
    number = np.full(len(found.table), -1, np.int32)
    number[found.members] = found.group
    return number


class BlockedTime:
    """How long each rank has been blocked, up to every row.

    waits: rows and their s. released: members that a 1-to-n collective releases together; others may be present.
    """

    def __init__(self, found: Calls, waits: list[tuple[Rows, Array]], released: Rows) -> None:
        rows = len(found.table)
        stood = np.zeros(rows)
        for at, seconds in waits:
            np.add.at(stood, at, seconds)
        self.found = found
        self.until = np.concatenate([[0.0], np.cumsum(stood)])  # until[i]: before row i
        # The row after the last collective of all before a row that released its rank, or the rank's first.
        self.met = np.full(rows, -1, np.int32)
        rank = found.table.rank
        first = np.searchsorted(rank, np.arange(found.table.ranks))
        first = first[first < rows]
        self.met[first] = first
        both = found.pattern[found.group] == EACH_FOR_ALL
        together = found.pattern[found.group] == ALL_FOR_ROOT
        together &= np.isin(found.members, released)
        later = found.members[(both | together) & found.of_all[found.group]] + 1
        later = later[later < rows]
        self.met[later] = np.where(rank[later] == rank[later - 1], later, self.met[later])
        np.maximum.accumulate(self.met, out=self.met)
        self.parts = np.flatnonzero(both & ~found.of_all[found.group])  # members

    def since_collective(self) -> Array:
        """Return the seconds of each member since the last n-to-n that all members of its collective were in."""
        rows = self.found.members
        begin = self.met[rows]
        if len(self.parts):
            begin = np.maximum(begin, self._after_the_same())
        return np.asarray(self.until[rows] - self.until[begin])

    def _after_the_same(self) -> Rows:
        """Return of each member the row after the rank's last n-to-n on the same communicator, 0: none."""
        table, members = self.found.table, self.found.members
        order = np.lexsort((members, table.comm[members], table.rank[members]))
        sorts = np.zeros(len(members), np.bool_)
        sorts[self.parts] = True
        rows, rank = members[order], table.rank[members[order]]
        comm = table.comm[members[order]]
        new = np.ones(len(order), np.bool_)
        new[1:] = (np.diff(rank) != 0) | (np.diff(comm) != 0)
        run = np.cumsum(new) - 1
        # Rows of one rank only grow, and those of the next rank are greater: of a run, the latest so far.
        last = np.where(sorts[order], rows + 1, 0)
        last = np.concatenate([[0], last[:-1]])
        last[new] = 0
        wide = run * (np.int64(len(table)) + 1)
        last = np.maximum.accumulate(wide + last) - wide
        result = np.empty(len(order), np.int64)
        result[order] = last
        return result

    def since_they_met(
        self, table: Timeline, sends: Rows, receives: Rows, of_sender: bool
    ) -> Array:
        """Return the seconds for which one side of each message was blocked since both sides last met."""
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
        if len(self.parts):
            begin = np.maximum(begin, self._after_one_of_both(mine, pair, order))
        return np.asarray(np.clip(self.until[mine] - begin, 0.0, None))

    def _after_one_of_both(self, mine: Rows, pair: Rows, order: Rows) -> Array:
        """Return `until` after the last n-to-n of some ranks that both of a pair were in, 0 where there is none."""
        table, begin = self.found.table, np.zeros(len(mine))
        rows = self.found.members[self.parts]
        rank, comm = table.rank[rows], table.comm[rows]
        edges = np.flatnonzero(np.diff(pair[order])) + 1
        for part in np.split(order, edges):
            ends = divmod(int(pair[part[0]]), table.ranks)
            of_one, of_other = (slice(*np.searchsorted(rank, [end, end + 1])) for end in ends)
            shared = np.intersect1d(comm[of_one], comm[of_other])
            for end, own in zip(ends, (of_one, of_other), strict=True):
                met = rows[own][np.isin(comm[own], shared)] + 1
                its = part[table.rank[mine[part]] == end]
                if len(met) and len(its):
                    at = np.searchsorted(met, mine[its], "right") - 1
                    begin[its] = np.where(at >= 0, self.until[met[np.maximum(at, 0)]], 0.0)
        return begin


def _collectives(found: Calls, busy: Busy) -> tuple[Rows, Rows, Array]:
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


def _by_rank(found: Calls, rows: Rows, seconds: Array) -> Array:
    return np.bincount(found.table.rank[rows], weights=seconds, minlength=found.table.ranks)
