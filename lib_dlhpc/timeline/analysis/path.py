"""The critical path of a recorded program, from call to call, back from the last event."""

from typing import Any

import numpy as np

from lib_dlhpc.timeline.analysis.busy import busy
from lib_dlhpc.timeline.analysis.calls import COLLECTIVE, RECEIVE, SEND, Calls, Rows, calls
from lib_dlhpc.timeline.analysis.waits import AllWaits, waits
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.spans import in_order
from lib_dlhpc.timeline.table import COLUMNS, DEFAULTS, Timeline

COMPUTATION = "computation"  # what a rank does between its calls


def path_of_calls(timeline: Timeline) -> Timeline:
    """Return the critical path of a table with calls: calls from when the path enters them, and what is between."""
    table = in_order(timeline)
    found = calls(table)
    return path(found, waits(found, busy(table)))


def path(found: Calls, late: AllWaits) -> Timeline:
    """Return the critical path of matched calls, by what each waited for."""
    table = found.table
    kind = table.kind
    rows = np.flatnonzero((kind == SEND) | (kind == RECEIVE) | (kind == COLLECTIVE))
    rows = rows.astype(np.int32)
    number = np.full(len(table), -1, np.int32)
    number[rows] = np.arange(len(rows), dtype=np.int32)
    # The call at whose start the path enters this one.
    cause = np.arange(len(rows), dtype=np.int32)
    for waited in (late.late_sender, late.late_receiver, late.collective):
        held = waited.seconds > 0
        cause[number[waited.row[held]]] = number[waited.cause[held]]
    rank = table.rank[rows]
    first = np.searchsorted(rank, np.arange(table.ranks + 1))
    back = np.where(cause == first[rank[cause]], -1, cause - 1).astype(np.int32)

    end = int(np.argmax(table.stop))
    who, until = int(table.rank[end]), float(table.stop[end])
    last = int(first[who + 1]) - 1
    chosen = _follow(back, last if last >= first[who] else -1)
    begin = float(table.start.min())
    at, enter = rows[chosen], table.start[rows[cause[chosen]]]
    # Computation: after each call of the path up to where the next one is entered, and before the first.
    owner = np.concatenate([table.rank[rows[cause[chosen]]], [who]]).astype(np.int32)
    since = np.concatenate([[begin], table.stop[at]])
    till = np.concatenate([enter, [until]])
    gap = till > since
    kept = table.select(at)
    word = table.names.index(COMPUTATION) if COMPUTATION in table.names else len(table.names)
    count = int(gap.sum())
    between: dict[str, Any] = {
        "rank": owner[gap],
        "stream": np.full(count, STREAMS.index("compute")),
        "kind": np.full(count, KINDS.index("region")),
        "name": np.full(count, word),
        "start": since[gap],
        "stop": till[gap],
    } | {column: np.full(count, value) for column, value in DEFAULTS.items()}
    order = np.argsort(
        np.concatenate([np.arange(len(at)) * 2 + 1, np.flatnonzero(gap) * 2]), kind="stable"
    )
    columns: dict[str, Any] = {
        column: np.concatenate([getattr(kept, column), between[column]])[order].astype(typed)
        for column, typed in COLUMNS.items()
    }
    columns["start"] = np.concatenate([np.minimum(enter, kept.stop), since[gap]])[order]
    names = table.names if word < len(table.names) else (*table.names, COMPUTATION)
    return Timeline(**columns, names=names, ranks=table.ranks, source=table.source)


def _follow(back: Rows, last: int) -> Rows:
    """Return the calls of the path in order: each the one before which the next was entered."""
    found = []
    hops: Any = memoryview(np.ascontiguousarray(back))  # type: ignore[arg-type]
    for _ in range(len(back)):  # a trace whose clocks disagree must not go round in circles
        if last < 0:
            break
        found.append(last)
        last = hops[last]
    return np.array(found[::-1], np.int64)
