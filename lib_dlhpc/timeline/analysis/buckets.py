"""Replay on an ideal network, for traces with exchanges and waits but without calls.

A rank waits where it computes nothing and has exchanges in flight; on an ideal network an exchange is
over when the last rank has joined it. Where an engine records which of the waits is the bubble of a pipeline, that is
what is left of them.
"""

import numpy as np

from lib_dlhpc.timeline.analysis.busy import HELD, Busy
from lib_dlhpc.timeline.analysis.calls import Calls
from lib_dlhpc.timeline.analysis.replay import Plan, replay
from lib_dlhpc.timeline.kinds import STREAMS
from lib_dlhpc.timeline.spans import union


def ideal_seconds(found: Calls, busy: Busy) -> float:
    """Return how long the run would take on an ideal network, s."""
    table, span = found.table, busy.end - busy.begin
    compute = table.stream == STREAMS.index("compute")
    talk = (table.stream == STREAMS.index("communication")) & (table.peer < 0)
    still = compute & table.where("", *HELD)
    working = union(table, compute & ~still)
    everywhere = union(table, still | talk | (compute & ~still))
    if table.where("compute", "bubble").any() or not len(found.members):
        bubble = union(table, table.where("compute", "bubble")).total()
        held = everywhere.total() - working.total() - bubble
        return span - float(np.clip(held, 0.0, None).min())

    # Two steps of each exchange on each rank: joining it, and needing it where the rank is idle.
    rows, group = found.members, found.group
    rank = np.concatenate([table.rank[rows]] * 2)
    time = np.concatenate([table.start[rows], table.stop[rows]])
    second = np.repeat([0, 1], len(rows))
    order = np.lexsort((second, time, rank))
    rank, time, second = rank[order], time[order], second[order]
    group = np.concatenate([group, group])[order]

    # Progress: all time but that in which a rank only waits.
    own = time - busy.begin - (everywhere.before(rank, time) - working.before(rank, time))
    new = np.ones(len(rank), np.bool_)
    new[1:] = np.diff(rank) != 0
    first = np.flatnonzero(new)
    begin = np.full(len(first), busy.begin)
    zero = -(everywhere.before(rank[first], begin) - working.before(rank[first], begin))
    before = np.diff(own, prepend=0.0)
    before[first] = own[first] - zero
    # An exchange that ends while its rank computes delays no rank.
    close = 1e-9 * span
    waits = working.before(rank, time) - working.before(rank, time - close) < 0.5 * close
    gives = np.where(second == 0, group, -1)
    meets = np.where((second == 1) & waits, group, -1)
    after = np.append(first[1:], len(rank))
    count = np.bincount(group[second == 0], minlength=found.groups)
    none = np.full(len(rank), -1)
    plan = Plan(np.maximum(before, 0.0), none, meets, gives, count, first, after)
    done = replay(plan, np.zeros(len(first)))
    who = rank[first]
    end = np.full(len(who), busy.end)
    left = end - time[after - 1]
    left -= everywhere.before(who, end) - everywhere.before(who, time[after - 1])
    left += working.before(who, end) - working.before(who, time[after - 1])
    return min(float((done + np.maximum(left, 0.0)).max()), span)
