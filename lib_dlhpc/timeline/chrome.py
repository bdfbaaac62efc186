"""The trace-event JSON of Chrome, which Perfetto (ui.perfetto.dev) opens too: written, and read back.

A process is a rank, a thread a stream (a second one of the stream where its events overlap without
nesting), an event a complete one (ph X) in microseconds. A message, and a send with its receive, is an
arrow (ph s, f) from one rank to the other. Nothing is rounded: what is written comes back to the bit.
Format: "Trace Event Format", Google (2016).
"""

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.timeline.json_events import JsonTrace, moment, number
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.lanes import in_order, lanes
from lib_dlhpc.timeline.rows import LATEST, Rows
from lib_dlhpc.timeline.table import DEFAULTS, Timeline

LANES = 16  # thread = stream + LANES x lane
BLOCK = 65536  # events at a time


def export_chrome(timeline: Timeline, path: str | Path) -> None:
    """Write the timeline as trace-event JSON, packed if `path` ends in .gz; no half file is ever seen.

    Raises OSError where nothing can be written, SpecError for times that no file can hold.
    """
    path = Path(path)
    if not (np.abs([timeline.start, timeline.stop]) < LATEST).all():
        raise SpecError(f"{path}: an event begins or ends later than {LATEST:.3g} s: not written.")
    with replacing(path, guarded=True) as temporary, _open(temporary, path.suffix == ".gz") as file:
        about = {"source": timeline.source, "ranks": timeline.ranks, "streams": list(STREAMS)}
        file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[')
        comma = "\n"
        for event in _events(timeline):
            file.write(comma + event)
            comma = ",\n"
        file.write("\n]}\n")


def read_chrome(trace: JsonTrace) -> Timeline:
    """Return the timeline of a file that `export_chrome` wrote. Raises SpecError if there is none in it."""
    rows = Rows()
    about: Any = trace.about.get("otherData")
    try:
        ranks, source = number(about["ranks"], "ranks"), str(about["source"])
        streams = [str(stream) for stream in about["streams"]]
    except (TypeError, KeyError) as error:
        raise SpecError(f"{trace.path}: no timeline of dlhpc: otherData: {error}.") from None
    for count, event in enumerate(trace.events()):
        if event.get("ph") != "X":
            continue
        try:
            _add(rows, event, streams)
        except KeyError as error:
            raise SpecError(f"{trace.path}: event {count} has no {error}.") from None
        except (TypeError, ValueError, ArithmeticError, IndexError) as error:
            raise SpecError(f"{trace.path}: event {count}: {error}.") from None
    try:
        return rows.timeline(ranks, source)
    except SpecError as error:
        raise SpecError(f"{trace.path}: {error}") from None


def _add(rows: Rows, event: dict[str, Any], streams: list[str]) -> None:
    kind, args = str(event["cat"]), event.get("args", {})
    if kind not in KINDS:
        raise ValueError(listed(f"cat = {kind!r}:", kind, KINDS, "expected one of"))
    stream = streams[number(event["tid"], "tid") % LANES]
    if stream not in STREAMS:
        raise ValueError(f"stream {stream!r}: expected one of {', '.join(STREAMS)}")
    begin, length = moment(event["ts"], "ts"), moment(event["dur"], "dur")
    times = float(begin.scaleb(-6)), float((begin + length).scaleb(-6))
    more = {name: number(args.get(name, missing), name) for name, missing in DEFAULTS.items()}
    rows.add(number(event["pid"], "pid"), stream, kind, str(event["name"]), *times, **more)


def _open(path: Path, packed: bool) -> TextIO:
    if packed:
        return gzip.open(path, "wt", compresslevel=6, encoding="utf-8")
    return open(path, "w", encoding="utf-8")


def _events(timeline: Timeline) -> Iterator[str]:
    """Yield the events, one JSON object each: first who is who, then what happened."""
    table = timeline.select(in_order(timeline, timeline.start, timeline.stop))
    lane = lanes(table, table.start, table.stop)
    thread = table.stream.astype(np.int64) + LANES * lane
    yield from _labels(table, thread)
    leaves, arrives = _matched(table)
    names = [json.dumps(name) for name in table.names]
    kinds = [json.dumps(kind) for kind in KINDS]
    columns = (table.rank, thread, table.kind, table.name, table.start, table.stop)
    given = (table.bytes, table.peer, table.comm, table.match, leaves, arrives)
    for low in range(0, len(table), BLOCK):  # lists of numbers take ten times the room of columns
        lists = [column[low : low + BLOCK].tolist() for column in (*columns, *given)]
        for row, values in enumerate(zip(*lists, strict=True), start=low):
            rank, tid, kind, name, start, stop, size, peer, comm, match, leave, arrive = values
            args = _args({"bytes": size, "peer": peer, "comm": comm, "match": match})
            begin, end = _microseconds(start), _microseconds(stop)
            who = f'"pid":{rank},"tid":{tid}'
            yield (
                f'{{"name":{names[name]},"cat":{kinds[kind]},"ph":"X","ts":{begin:f},'
                f'"dur":{end - begin:f},{who}{args}}}'
            )
            if leave >= 0:
                yield _arrow("s", leave, begin, who)
            if arrive >= 0:
                inside = max(start, float(table.start[arrive]))  # it never points back in time
                yield _arrow("f", arrive, _microseconds(min(inside, stop)), who)
            if KINDS[kind] == "communication" and peer >= 0:
                there = f'"pid":{peer},"tid":{tid}'
                yield _arrow("s", len(table) + row, begin, who)
                yield _arrow("f", len(table) + row, end, there)


def _args(given: dict[str, int]) -> str:
    arguments = {name: value for name, value in given.items() if value != DEFAULTS[name]}
    return f',"args":{json.dumps(arguments)}' if arguments else ""


def _arrow(phase: str, number: int, at: Decimal, who: str) -> str:
    binding = ',"bp":"e"' if phase == "f" else ""  # the slice around that moment, not the next one
    return f'{{"name":"message","cat":"message","ph":"{phase}","id":{number},"ts":{at:f},{who}{binding}}}'


def _matched(table: Timeline) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row the number of the arrow that leaves there, and of the one that arrives; -1: none.

    An arrow has the number of its send's row. A match of more than one send or receive has no arrow.
    """
    leaves, arrives = np.full((2, len(table)), -1, np.int64)
    once = []
    for kind in ("send", "receive"):
        rows = np.flatnonzero(table.where("", kind) & (table.match >= 0))
        match, first, count = np.unique(table.match[rows], return_index=True, return_counts=True)
        once.append((match[count == 1], rows[first[count == 1]]))
    (sent, sends), (received, receives) = once
    _, left, right = np.intersect1d(sent, received, assume_unique=True, return_indices=True)
    leaves[sends[left]] = arrives[receives[right]] = sends[left]
    return leaves, arrives


def _labels(table: Timeline, thread: np.ndarray) -> Iterator[str]:
    for rank in np.unique(table.rank).tolist():
        yield _label("process_name", rank, 0, "name", f"rank {rank}")
        yield _label("process_sort_index", rank, 0, "sort_index", rank)
    for rank, tid in np.unique(np.stack([table.rank, thread], axis=1), axis=0).tolist():
        lane, stream = divmod(tid, LANES)
        name = STREAMS[stream] + (f" {lane + 1}" if lane else "")
        yield _label("thread_name", rank, tid, "name", name)
        yield _label("thread_sort_index", rank, tid, "sort_index", 1000 * stream + lane)


def _label(what: str, rank: int, thread: int, key: str, value: Any) -> str:
    label = {"name": what, "ph": "M", "pid": rank, "tid": thread, "args": {key: value}}
    return json.dumps(label, separators=(",", ":"))


def _microseconds(time: float) -> Decimal:
    """Return the shortest decimal that is this time, moved by six places: exact, and no float again."""
    return Decimal(repr(time)).scaleb(6)
