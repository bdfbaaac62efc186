"""A step as a picture: the Gantt chart of a Timeline, a few ranks of many, and what to see in it.

A rank has a lane for each of its streams: what it computes above, its exchanges below. The drawing is
made in drawings.py; here the rows of a timeline become its columns:

    gantt(simulate(experiment))                       a chart in a notebook
    figure = chart("gantt"); figure.update(**gantt_state(timeline))
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import drawing
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.gantt.nesting import innermost
from lib_dlhpc.explore.gantt.words import gantt_words, last_to_join, seconds_computing
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import STREAMS, Timeline

MOST = 16  # ranks that a chart has room for
LANES = {
    "compute": 20.0,
    "communication": 14.0,
    "input": 8.0,
    "checkpoint": 8.0,
    "host": 14.0,
}  # px, their height
GAP = 11.0  # px between two ranks
FINEST = 300  # bars shorter than this part of the chart are joined with their like
KEY_COLUMNS = 4

Lanes: TypeAlias = dict[
    tuple[int, str], tuple[float, float]
]  # (rank, stream) -> its top and bottom


class Look(NamedTuple):
    """How a bar is drawn."""

    color: str
    opacity: float
    hatched: bool
    ink: str


# No two looks in one lane differ by their color alone: lightness or hatching differs as well.
LOOKS = {
    "forward": Look(palette.TERMS["forward"], 1.0, False, "#000000"),
    "backward": Look(palette.TERMS["backward"], 1.0, False, "#ffffff"),
    "update": Look(palette.TERMS["update"], 1.0, False, "#ffffff"),
    "idle": Look(palette.TERMS["waiting for the slowest"], 0.35, True, "currentColor"),
    "pipeline bubble": Look(palette.TERMS["pipeline bubble"], 0.45, True, "currentColor"),
    "communication": Look(palette.TERMS["exposed communication"], 1.0, False, "#000000"),
    "waiting for the last rank": Look(
        palette.TERMS["exposed communication"], 0.25, True, "currentColor"
    ),
    "input stall": Look(palette.TERMS["input stall"], 0.35, True, "currentColor"),
    "input": Look(palette.TERMS["input stall"], 1.0, False, "#000000"),
    "checkpoint": Look(palette.TERMS["checkpoint"], 1.0, False, "#000000"),
    "region": Look("#cfe3ef", 1.0, False, "#000000"),
    "sends": Look("#f5c18a", 1.0, False, "#000000"),
    "receives": Look("#8a3d00", 1.0, False, "#ffffff"),
    "collective": Look(palette.TERMS["exposed communication"], 1.0, False, "#000000"),
}
LOOK_OF = {
    "wait": "idle",
    "bubble": "pipeline bubble",
    "communication": "communication",
    "input": "input",
    "send": "sends",
    "receive": "receives",
}
CALLS = ("send", "receive", "collective")  # of a recorded program


def gantt(timeline: Timeline, title: str = "", ranks: Iterable[int] | None = None) -> Figure:
    """Return the Gantt chart of a timeline as a widget, with the same in words below it.

    title: the caption. ranks: as in `gantt_state`, which says what is raised.
    """
    spec = dict(drawing("gantt"))
    if title:
        spec["usermeta"] = {**spec["usermeta"], "title": title}
    return Figure(spec, **gantt_state(timeline, ranks))


def gantt_state(
    timeline: Timeline, ranks: Iterable[int] | None = None, most: int = 8
) -> dict[str, Any]:
    """Return data, summary and signals for a Figure of the drawing "gantt".

    ranks: the ones to show; by default the slowest, the fastest and others evenly spaced, `most` in
    all. Messages under way are not drawn; of regions within each other the innermost is. Raises
    SpecError for a rank that there is not and for more than 16.
    """
    whole = timeline.select((timeline.peer < 0) | timeline.where("", *CALLS))
    computing = seconds_computing(whole)
    shown = _chosen(computing, most) if ranks is None else _asked(ranks, timeline.ranks)
    last = last_to_join(whole)
    rows = np.flatnonzero(np.isin(whole.rank, shown))
    part, joined = innermost(whole.select(rows), last[rows])
    lanes = [name for i, name in enumerate(STREAMS) if i < 2 or (part.stream == i).any()]
    places, height = _places(shown, lanes)
    bars = _bars(part, _missing(whole, part, joined), places)
    used = [look for look in LOOKS if look in set(bars["look"])]
    return {
        "data": {"bars": bars, "ranks": _labels(computing, shown, places), "key": _key(used)},
        "summary": gantt_words(whole, shown, bool((last >= 0).any())),
        "signals": {"height": height},
    }


def _chosen(computing: NDArray[np.float64], most: int) -> list[int]:
    """Return all ranks, or the slowest, the fastest and others evenly spaced."""
    if not 2 <= most <= MOST:
        raise SpecError(f"most = {most}: expected 2 to {MOST} ranks.")
    count = len(computing)
    if count <= most:
        return list(range(count))
    spaced = np.linspace(0, count - 1, most - 2).round().astype(int).tolist()
    return sorted({int(computing.argmax()), int(computing.argmin()), *spaced})


def _asked(ranks: Iterable[int], count: int) -> list[int]:
    asked = sorted(set(ranks))
    wrong = [rank for rank in asked if not 0 <= rank < count]
    if wrong or not 0 < len(asked) <= MOST:
        what = f"rank {wrong[0]}" if wrong else f"{len(asked)} ranks"
        raise SpecError(f"{what}: expected 1 to {MOST} of the ranks 0 to {count - 1}.")
    return asked


def _places(shown: Sequence[int], lanes: Sequence[str]) -> tuple[Lanes, float]:
    """Return where each lane lies, as parts of the height, and the height in px."""
    height = len(shown) * (sum(LANES[lane] for lane in lanes) + GAP)
    places, top = {}, GAP / 2
    for rank in shown:
        for lane in lanes:
            places[rank, lane] = (top / height, (top + LANES[lane]) / height)
            top += LANES[lane]
        top += GAP
    return places, height


def _missing(whole: Timeline, part: Timeline, joined: NDArray[np.intp]) -> list[tuple[float, int]]:
    """Return for each row until when it waits for ranks to join its exchange, and for which rank last."""
    until = np.where(joined >= 0, whole.start[joined], part.start)
    return list(zip(until.tolist(), whole.rank[joined].tolist(), strict=True))


def _bars(part: Timeline, missing: list[tuple[float, int]], places: Lanes) -> dict[str, list[Any]]:
    """Return the columns of the bars: one a row, two where an exchange waits for ranks to join."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "rank",
            "look",
            "event",
            "start",
            "stop",
            "seconds",
            "bytes",
            "top",
            "bottom",
            "edge",
            "words",
            "details",
            *Look._fields,
        )
    }
    finest = float(np.ptp(np.append(part.start, part.stop))) / FINEST if len(part) else 0.0

    def add(event: Any, look: str, start: float, stop: float, name: str, more: str = "") -> None:
        top, bottom = places[event.rank, event.stream]
        long = stop - start > 2 * finest
        size = f", {show(event.bytes, 'B')}" if event.bytes else ""
        when = f"{show(stop - start, 's')} from {show(start, 's')} on"
        row = {
            "rank": event.rank,
            "look": look,
            "event": name,
            "start": start,
            "stop": stop,
            "seconds": stop - start,
            "bytes": event.bytes or None,
            "top": top,
            "bottom": bottom,
            "edge": 0.7 if long else 0.0,
            "words": name if not LOOKS[look].hatched else "",
            "details": f"rank {event.rank:,}, {name}: {when}{size}{more}",
            **LOOKS[look]._asdict(),
        }
        for column, value in row.items():
            columns[column].append(value)

    for event, (until, whom) in _coarse(part, missing, finest):
        look = (
            "input stall"
            if (event.stream, event.kind) == ("compute", "input")
            else (LOOK_OF.get(event.kind, event.kind))
        )
        waited = until - event.start
        if waited > finest:
            more = f"; rank {whom:,} is the last to join, {show(waited, 's')} later"
            add(event, "waiting for the last rank", event.start, until, event.name, more)
            add(event, look, until, event.stop, event.name)
        elif event.stop > event.start:
            add(event, look, event.start, event.stop, event.name)
    return columns


def _coarse(part: Timeline, missing: list[tuple[float, int]], finest: float) -> Iterable[Any]:
    """Yield (event, missing), with neighbors of one kind that are too short to be seen as one event."""
    order = np.lexsort((part.start, part.kind, part.stream, part.rank)).tolist()
    events = list(part.select(order))
    held: Any = None
    for event, wait in zip(events, (missing[i] for i in order), strict=True):
        lane = (event.rank, event.stream, event.kind)
        if held and lane == held[1]:
            before = held[0]
            if event.start - before.stop < finest and (
                max(event.stop - event.start, before.stop - before.start) < finest
            ):
                name = f"{before.name.split(' to ')[0]} to {event.name}"
                stop = max(before.stop, event.stop)
                both = before._replace(name=name, stop=stop, bytes=before.bytes + event.bytes)
                held = (both, lane, held[2])
                continue
        if held:
            yield held[0], held[2]
        held = (event, lane, wait)
    if held:
        yield held[0], held[2]


def _labels(
    computing: NDArray[np.float64], shown: Sequence[int], places: Lanes
) -> dict[str, list[Any]]:
    notes = {int(computing.argmin()): "fastest", int(computing.argmax()): "slowest"}
    if computing.max() == computing.min():
        notes = {}
    return {
        "words": [f"rank {rank:,}" for rank in shown],
        "note": [notes.get(rank, "") for rank in shown],
        "middle": [places[rank, "compute"][1] for rank in shown],
    }


def _key(used: Sequence[str]) -> dict[str, list[Any]]:
    """Return the key's entries, in lines of four of which the last lies on the chart."""
    lines = -(-len(used) // KEY_COLUMNS)
    return {
        "words": list(used),
        **{name: [getattr(LOOKS[look], name) for look in used] for name in Look._fields},
        "column": [i % KEY_COLUMNS for i in range(len(used))],
        "line": [i // KEY_COLUMNS - lines for i in range(len(used))],
    }
