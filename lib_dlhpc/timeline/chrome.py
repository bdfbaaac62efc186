"""Export to the trace-event JSON of Chrome, which Perfetto (ui.perfetto.dev) opens too.

A process is a rank, a thread a stream, an event a complete one (ph X) in microseconds; a message is an
arrow (ph s, f) from its sender to its receiver. Format: "Trace Event Format", Google (2016).
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from lib_dlhpc.timeline.table import KINDS, STREAMS, Timeline


def export_chrome(timeline: Timeline, path: str | Path) -> None:
    """Write the timeline as trace-event JSON, under a temporary name first so that no half file is seen.

    Raises OSError where nothing can be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(trace_events(timeline), file, separators=(",", ":"))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def trace_events(timeline: Timeline) -> dict[str, Any]:
    """Return the timeline as the object that trace-event JSON holds."""
    table = timeline.sorted()
    events: list[dict[str, Any]] = []
    streams = np.unique(np.stack([table.rank, table.stream], axis=1), axis=0).tolist()
    for rank in np.unique(table.rank).tolist():
        events.append(_label("process_name", rank, 0, "name", f"rank {rank}"))
        events.append(_label("process_sort_index", rank, 0, "sort_index", rank))
    for rank, stream in streams:
        events.append(_label("thread_name", rank, stream, "name", STREAMS[stream]))
        events.append(_label("thread_sort_index", rank, stream, "sort_index", stream))
    start, stop = (1e6 * table.start).tolist(), (1e6 * table.stop).tolist()
    columns = (table.rank, table.stream, table.kind, table.name, table.bytes, table.peer)
    for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        rank, stream, kind, name, size, peer = row
        event: dict[str, Any] = {"name": table.names[name], "cat": KINDS[kind], "ph": "X"}
        event |= {"ts": start[number], "dur": stop[number] - start[number]}
        event |= {"pid": rank, "tid": stream}
        if size or peer >= 0:
            event["args"] = {"bytes": size} | ({"to": peer} if peer >= 0 else {})
        events.append(event)
        if peer >= 0:
            arrow = {"name": "message", "cat": "message", "id": number, "tid": stream}
            events.append({**arrow, "ph": "s", "ts": start[number], "pid": rank})
            events.append({**arrow, "ph": "f", "bp": "e", "ts": stop[number], "pid": peer})
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"source": table.source, "ranks": table.ranks},
    }


def _label(what: str, rank: int, stream: int, key: str, value: Any) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": rank, "tid": stream, "args": {key: value}}
