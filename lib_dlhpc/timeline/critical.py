"""The critical path: the events that, one after another, make the run as long as it is.

Followed backwards from the last event. An exchange goes back to the rank that joined it last, for
nobody gets the sum before the last contribution is in; anything else goes back to what ended, on its
own rank, when it began.
"""

import numpy as np

from lib_dlhpc.timeline.table import COLUMNS, Timeline


def critical_path(timeline: Timeline) -> Timeline:
    """Return the events of the critical path in order, each from when the path enters it.

    Where nothing stands still but for an event that is in the table, their seconds add up to the span.
    """
    talk = timeline.where("communication") & (timeline.peer < 0)
    still = timeline.where("compute", "wait", "bubble")
    rows = (talk | timeline.where("compute")) & ~still & (timeline.stop > timeline.start)
    table = timeline.select(rows).sorted()
    if not len(table):
        return table
    close = 1e-9 * float(table.stop.max() - table.start.min())
    joined = table.where("communication")
    path, enters = [], []
    row = int(np.argmax(table.stop))
    while row >= 0:
        last = row
        if joined[row]:
            last = _last_to_join(table, row)
        path.append(row)
        enters.append(float(table.start[last]))
        row = _ended_before(table, last, close)
    chosen = table.select(np.array(path[::-1]))
    columns = {column: getattr(chosen, column) for column in COLUMNS}
    columns["start"] = np.minimum(np.array(enters[::-1]), chosen.stop)
    return Timeline(**columns, names=table.names, ranks=table.ranks, source=table.source)


def _last_to_join(table: Timeline, row: int) -> int:
    """The event of the same exchange that began last: same name, the same time over on its rank."""
    same = table.where("communication") & (table.name == table.name[row])
    nth = np.count_nonzero(
        same & (table.rank == table.rank[row]) & (table.start < table.start[row])
    )
    group = np.flatnonzero(same)
    order = np.arange(len(group)) - np.searchsorted(table.rank[group], table.rank[group])
    group = group[order == nth]  # the table is sorted by rank, then start
    latest = table.start[group].max()
    return row if table.start[row] == latest else int(group[np.argmax(table.start[group])])


def _ended_before(table: Timeline, row: int, close: float) -> int:
    """The event of the same rank that ended last before this one began; -1 if there is none."""
    begin = table.start[row]
    mine = np.flatnonzero(
        (table.rank == table.rank[row]) & (table.stop <= begin + close) & (table.start < begin)
    )
    return int(mine[np.argmax(table.stop[mine])]) if len(mine) else -1
