"""Replay on an ideal network: messages take no time, but none arrives before it is sent.

Every rank does what it did between its calls for as long as it did it. A call itself takes no time; a
receive ends no sooner than its send begins, a send that was blocked by its receiver no sooner than the
receive begins, a collective by its pattern (waits.py). So a rank is never later than it really was.
This is what POP asks of a network simulator (bandwidth without limit, no latency).

Between two barriers of all ranks no rank depends on earlier events, so such stretches are replayed side by side, all at
once, one call of each rank at a time. Where calls are many and all ranks never meet, the trace is cut into
stretches of equal time instead; there the time saved is taken from the rank that saves least, so the ideal
time can come out too long, never too short.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.analysis.busy import Busy
from lib_dlhpc.timeline.analysis.calls import (
    ALL_FOR_ROOT,
    COLLECTIVE,
    EACH_FOR_ALL,
    RECEIVE,
    ROOT_FOR_ALL,
    SEND,
    Calls,
    Rows,
)

LONGEST = 20_000  # calls of one rank between two meetings that are replayed one by one
STRETCH = 1_000  # calls of a rank in stretches of equal time


@dataclass(frozen=True, eq=False)
class Plan:
    """Calls, one after another on each rank, and what each waits for."""

    before: Array  # s from the end of the last call of this rank and stretch
    needs: Rows  # the call that must have begun before this one ends, -1: none
    meets: Rows  # the collective that must be complete before this one ends, -1: none
    gives: Rows  # the collective that this call joins, -1: none
    members: Rows  # how many calls each collective is complete with
    first: Rows  # of each chain
    after: Rows  # the call after the last of each chain


def ideal_seconds(found: Calls, busy: Busy) -> float:
    """Return how long the run would take on an ideal network, s."""
    table = found.table
    kind = table.kind
    rows = np.flatnonzero((kind == SEND) | (kind == RECEIVE) | (kind == COLLECTIVE))
    rows = rows.astype(np.int32)
    span = busy.end - busy.begin
    if not len(rows):
        return span
    rank, start, stop = table.rank[rows], table.start[rows], table.stop[rows]
    first = np.searchsorted(rank, np.arange(table.ranks + 1))
    stretch, meetings = _between_meetings(found, rows, first)
    exact = meetings > 0 and _longest(rank, stretch) <= LONGEST
    if not exact and np.diff(first).max() > LONGEST:
        count = -(-int(np.diff(first).max()) // STRETCH)
        width = span / count
        stretch = np.minimum((start - busy.begin) / width, count - 1).astype(np.int32)
    elif not exact:
        stretch, meetings, exact = np.zeros(len(rows), np.int32), 0, True
    stretches = int(stretch.max()) + 1

    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(rank) != 0) | (np.diff(stretch) != 0)
    chain = np.flatnonzero(new)
    previous = np.empty(len(rows))  # the end of the call before
    previous[0] = busy.begin
    previous[1:] = stop[:-1]
    previous[first[:-1][np.diff(first) > 0]] = busy.begin
    opened, offset = previous[chain], np.zeros(len(chain))
    if not exact:
        edge = busy.begin + stretch[chain] * width
        opened = np.maximum(opened, edge)
        previous[chain], offset = opened, opened - edge
    plan = _plan(found, rows, stretch, chain, np.maximum(start - previous, 0.0))
    done = replay(plan, offset)

    # What is left of a chain after its last call, up to the end of the stretch or of the rank.
    last = plan.after - 1
    if exact:
        final = np.append(chain[1:], len(rows)) == first[rank[last] + 1]
        tail = np.where(final, np.maximum(busy.last[rank[last]] - stop[last], 0.0), 0.0)
        ends = _ends(stretch[chain], stretches, meetings, done, final, tail)
        return min(float(ends.sum()), span)
    took = np.maximum(stop[last] - opened, 0.0)
    saved = np.full(stretches, np.inf)
    np.minimum.at(saved, stretch[chain], took + offset - done)
    alive = np.bincount(stretch[chain], minlength=stretches) == table.ranks
    return span - float(np.clip(saved[alive], 0.0, None).sum())


def _ends(
    stretch: Any, stretches: int, meetings: int, done: Any, final: Any, tail: Any
) -> NDArray[np.float64]:
    """Return the seconds of each stretch of an exact replay, and of what is behind the last meeting."""
    ends = np.zeros(stretches + 1)
    np.maximum.at(ends, stretch, done)
    # A rank whose last call is a meeting continues after it, beside the others' next stretch.
    behind = np.where(stretch == meetings, done, 0.0) + tail
    np.maximum.at(ends, np.full(final.sum(), meetings), behind[final])
    return ends


def _between_meetings(found: Calls, rows: Rows, first: Rows) -> tuple[Rows, int]:
    """Return which stretch between meetings of all ranks each call is in, and how many meetings part them."""
    meeting = (found.pattern == EACH_FOR_ALL) & (found.sizes == found.table.ranks)
    mark = np.zeros(len(found.table), np.bool_)
    mark[found.members[meeting[found.group]]] = True
    mark = mark[rows]
    before = np.cumsum(mark, dtype=np.int32) - mark
    base = np.append(before, mark.sum())[first[:-1]]
    stretch = (before - base[found.table.rank[rows]]).astype(np.int32)
    count = int(meeting.sum()) if _alike(found, meeting, rows, stretch) else 0
    return stretch, count


def _alike(found: Calls, meeting: np.ndarray, rows: Rows, stretch: Rows) -> bool:
    """Whether all ranks meet in the same order."""
    number = np.zeros(len(found.table), np.int32)
    number[rows] = stretch
    member = meeting[found.group]
    group, at = found.group[member], number[found.members[member]]
    one = np.zeros(found.groups, np.int32)
    one[group] = at
    return bool((one[group] == at).all())


def _longest(rank: Rows, stretch: Rows) -> int:
    edge = np.flatnonzero((np.diff(rank) != 0) | (np.diff(stretch) != 0))
    return int(np.diff(np.concatenate([[-1], edge, [len(rank) - 1]])).max())


def _plan(found: Calls, rows: Rows, stretch: Rows, chain: Rows, before: Array) -> Plan:
    table, many = found.table, len(rows)
    number = np.full(len(table), -1, np.int32)
    number[rows] = np.arange(many, dtype=np.int32)
    needs, meets, gives = (np.full(many, -1, np.int32) for _ in range(3))
    sends, receives = number[found.sends], number[found.receives]
    start, stop = table.start[found.sends], table.stop[found.sends]
    came = table.start[found.receives]
    same = stretch[sends] == stretch[receives]
    needs[receives[same]] = sends[same]
    same &= (came > start) & (stop > came)
    needs[sends[same]] = receives[same]

    members, group = number[found.members], found.group
    pattern = found.pattern[group]
    inside = np.full(found.groups, -1, np.int32)
    inside[group] = stretch[members]
    split = np.zeros(found.groups, np.bool_)  # over stretches: no rank waits there
    split[group[inside[group] != stretch[members]]] = True
    pattern = np.where(split[group], -1, pattern)
    root = found.is_root
    both = pattern == EACH_FOR_ALL
    joins = both | (~root & (pattern == ROOT_FOR_ALL)) | (root & (pattern == ALL_FOR_ROOT))
    waits = both | (root & (pattern == ROOT_FOR_ALL)) | (~root & (pattern == ALL_FOR_ROOT))
    gives[members[joins]] = group[joins]
    meets[members[waits]] = group[waits]
    count = np.bincount(group[joins], minlength=found.groups)
    return Plan(before, needs, meets, gives, count, chain, np.append(chain[1:], many))


def replay(plan: Plan, begin: Array) -> Array:
    """Return when each chain is done that begins at `begin`, s.

    All chains take a step at a time: a call begins when the one before it has ended, and ends when what it needs
    has begun.
    """
    begun = np.full(len(plan.before), -1.0)
    # One more, which is complete from the beginning: what -1 points at.
    joined = np.zeros(len(plan.members) + 1, np.int64)
    needed = np.append(plan.members, 0)
    complete = np.zeros(len(needed))
    clock = begin.copy()
    at = plan.first.copy()
    active = np.arange(len(at))
    fresh = np.ones(len(at), np.bool_)
    while len(active):
        row = at[active]
        time = clock[active] + plan.before[row]
        begun[row] = time
        joins = plan.gives[row]
        now = fresh & (joins >= 0)
        np.add.at(joined, joins[now], 1)
        np.maximum.at(complete, joins[now], time[now])
        needs, meets = plan.needs[row], plan.meets[row]
        other = begun[needs]
        ready = (needs < 0) | (other >= 0)
        ready &= joined[meets] >= needed[meets]
        if not ready.any():  # an impossible trace: release all ranks
            ready[:] = True
        time = np.where(needs >= 0, np.maximum(time, other), time)
        time = np.maximum(time, complete[meets])
        moved = active[ready]
        clock[moved] = time[ready]
        at[moved] += 1
        fresh = ready
        going = ~ready | (at[active] < plan.after[active])
        if not going.all():
            active, fresh = active[going], fresh[going]
    return clock
