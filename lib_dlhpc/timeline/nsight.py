"""Nsight Systems' export, read: nsys export --type sqlite, one file or one a node or rank.

    CUPTI_ACTIVITY_KIND_KERNEL, _MEMSET   stream compute, kind kernel; a kernel of NCCL, by its name: stream
                                          communication, kind collective, without its size, which is not exported
    CUPTI_ACTIVITY_KIND_MEMCPY            stream input, kind region, of copies from the host; others as kernels
    NVTX_EVENTS                           stream host, kind step: a name such as "step 3" or "iteration: 3";
                                          stream input, kind input: a loader of PyTorch, or "input"

A device of a process is a rank, in the order of files, devices and processes. Files have clocks of their own,
which collectives put on that of rank 0. Other tables are left out.
Schema: Nsight Systems, "SQLite Export Schema Reference"; tried on files made after it, not on an export.
"""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.collective_clock import match_by_name, one_clock
from lib_dlhpc.timeline.collective_names import collective_name
from lib_dlhpc.timeline.files import Tell
from lib_dlhpc.timeline.rows import Rows
from lib_dlhpc.timeline.table import Timeline

CUPTI = "CUPTI_ACTIVITY_KIND_"
FROM_HOST = 1  # copyKind of CUPTI
PROCESS = 24  # bits of a global thread's number below those of its process
LIBRARY = ("nccl", "rccl")
STEP = re.compile(
    r"(train[ _-]?)?(step|iteration|iter|batch|ProfilerStep)[ _:#=-]*\d+$", re.IGNORECASE
)
INPUT = re.compile(r"input$|enumerate\(DataLoader\)#")
Place = tuple[int, int, int]  # file, device, process
Event = tuple[str, str, str, int, int]  # stream, kind, name, start, stop


def read_nsight(paths: Sequence[Path], tell: Tell) -> Timeline:
    """Return the timeline of exports, beginning at 0. Raises SpecError for what cannot be read."""
    work: list[tuple[Place, Event]] = []
    host: list[tuple[int, int, Event]] = []
    for file, path in enumerate(paths):
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
                work += [((file, *place), event) for place, event in _device(base)]
                host += [(file, process, event) for process, event in _host(base)]
        except sqlite3.Error as error:
            raise SpecError(
                f"{path}: cannot be read as an export of Nsight Systems (.sqlite): {error}."
            ) from None
    places = sorted({place for place, _ in work})
    if not places:
        raise SpecError(f"{paths[0]}: no kernel in it: expected the table {CUPTI}KERNEL.")
    ranks = {place: rank for rank, place in enumerate(places)}
    rows = Rows(ticks=True)
    for place, event in work:
        rows.add(ranks[place], *event)
    for file, process, event in host:
        for place in places:
            if (place[0], place[2]) == (file, process):
                rows.add(ranks[place], *event)
    table = rows.timeline(len(places), "measured", min(rows.columns["start"]), 1e9)
    if table.where("communication").any():
        tell("Nsight Systems exports no sizes of collectives.")
    return one_clock(match_by_name(table), [file for file, _, _ in places]).sorted()


def _device(base: sqlite3.Connection) -> Iterator[tuple[tuple[int, int], Event]]:
    """Yield the events of devices, with device and process."""
    names = dict(base.execute("SELECT id, value FROM StringIds"))
    for device, process, name, start, stop in _rows(base, "KERNEL", "shortName"):
        what = str(names.get(name, name))
        if what.lower().startswith(LIBRARY):
            event = ("communication", "collective", collective_name(what), start, stop)
        else:
            event = ("compute", "kernel", what, start, stop)
        yield (device, process), event
    for device, process, kind, start, stop in _rows(base, "MEMCPY", "copyKind"):
        place = ("input", "region") if kind == FROM_HOST else ("compute", "kernel")
        yield (device, process), (*place, "copy", start, stop)
    for device, process, _, start, stop in _rows(base, "MEMSET", "streamId"):
        yield (device, process), ("compute", "kernel", "set", start, stop)


def _rows(base: sqlite3.Connection, table: str, what: str) -> Iterator[tuple[Any, ...]]:
    """Yield device, process, a column, start and stop of a table of CUPTI, where there is one."""
    columns = _columns(base, CUPTI + table)
    if columns:
        process = f"globalPid >> {PROCESS}" if "globalPid" in columns else "0"
        yield from base.execute(
            f"SELECT deviceId, {process}, {what}, start, end FROM {CUPTI}{table} ORDER BY start"
        )


def _host(base: sqlite3.Connection) -> Iterator[tuple[int, Event]]:
    """Yield steps and the fetching of batches, with their process."""
    columns = _columns(base, "NVTX_EVENTS")
    if not columns:
        return
    process = f"globalTid >> {PROCESS}" if "globalPid" in _columns(base, CUPTI + "KERNEL") else "0"
    text = "COALESCE(text, value)" if "textId" in columns else "text"
    join = "LEFT JOIN StringIds ON textId = id" if "textId" in columns else ""
    for of, name, start, stop in base.execute(
        f"SELECT {process}, {text}, start, end FROM NVTX_EVENTS {join} WHERE end IS NOT NULL ORDER BY start"
    ):
        if STEP.match(str(name)):
            yield of, ("host", "step", str(name), start, stop)
        elif INPUT.match(str(name)):
            yield of, ("input", "input", str(name), start, stop)


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table; none where it is not there."""
    return {row[1] for row in base.execute(f"PRAGMA table_info({table})")}
