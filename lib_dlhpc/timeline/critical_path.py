"""The critical path: the events that, one after another, make the run as long as it is.

Followed backwards from the last event. An exchange goes back to the rank that joined it last, since
no rank has the sum before the last contribution arrives; anything else goes back to what ended, on its
own rank, when it began. In a recorded program a receive that waited goes back to its send, a send that
waited to its receive, a collective to the rank it waited for.
"""

import numpy as np

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.table import COLUMNS, Timeline


def critical_path(timeline: Timeline) -> Timeline:
    """Return the events of the critical path in order, each from when the path enters it.

    Where every idle time has an event in the table, their seconds sum to the span.
    Between the calls of a recorded program the path goes through rows named "computation".
    """
    if timeline.where("", "send", "receive", "collective").any():
        from lib_dlhpc.timeline.analysis.path import path_of_calls

        return path_of_calls(timeline)
    talk = timeline.where("communication") & (timeline.peer < 0)
    still = timeline.where("compute", "wait", "bubble")
    rows = (talk | timeline.where("compute")) & ~still & (timeline.stop > timeline.start)
    table = timeline.select(rows).sorted()
    if not len(table):
        return table
    close = 1e-9 * float(table.stop.max() - table.start.min())
    joins = _last_to_join(table)
    # The rows of each rank by their end; of those that end together the first comes last.
    order = np.lexsort((-np.arange(len(table)), table.stop, table.rank))
    first = np.searchsorted(table.rank, np.arange(table.ranks + 1))
    ends = table.stop[order]
    path, enters = list[int](), list[float]()
    row = int(np.argmax(table.stop))
    while row >= 0:
        last = int(joins[row])
        if table.start[last] >= min([float(table.stop[row]), *enters[-1:]]):
            last = row  # of the same name, but another exchange: the path goes back in time only
        path.append(row)
        enters.append(float(table.start[last]))
        low, high = first[table.rank[last]], first[table.rank[last] + 1]
        row = _ended_before(table, order[low:high], ends[low:high], float(table.start[last]), close)
    chosen = table.select(np.array(path[::-1]))
    columns = {column: getattr(chosen, column) for column in COLUMNS}
    columns["start"] = np.minimum(np.array(enters[::-1]), chosen.stop)
    return Timeline(**columns, names=table.names, ranks=table.ranks, source=table.source)


def _last_to_join(table: Timeline) -> np.ndarray:
    """Return for each row the one of the same exchange that began last, or itself.

    The same exchange: the same match, or without one the same name, the same time over.
    """
    rows = np.flatnonzero(table.where("communication"))
    names = np.where(table.match >= 0, len(table.names) + table.match, table.name)
    order = np.lexsort((table.rank[rows], names[rows]))  # stable: in order of time
    rows = rows[order]
    name, rank = names[rows], table.rank[rows]
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(name) != 0) | (np.diff(rank) != 0)
    nth = np.arange(len(rows)) - np.flatnonzero(new)[np.cumsum(new) - 1]
    order = np.lexsort((rows, -table.start[rows], nth, name))  # each exchange: last to join first
    rows, name, nth = rows[order], name[order], nth[order]
    new[1:] = (np.diff(name) != 0) | (np.diff(nth) != 0)
    latest = rows[np.flatnonzero(new)[np.cumsum(new) - 1]]
    joins = np.arange(len(table))
    joins[rows] = np.where(table.start[rows] == table.start[latest], rows, latest)
    return joins


def _ended_before(
    table: Timeline, rows: np.ndarray, ends: Array, begin: float, close: float
) -> int:
    """The one of the rows, in the order of their ends, that ended last before `begin`; -1 if there is none."""
    at = int(np.searchsorted(ends, begin + close, "right")) - 1
    while at >= 0 and not table.start[rows[at]] < begin:
        at -= 1
    return int(rows[at]) if at >= 0 else -1
