"""The Gantt chart of a Timeline: a few ranks of many, and what to see in it.

A rank has a lane for each of its streams: what it computes above, its exchanges below.

    gantt(simulate(experiment))                       a chart in a notebook
    figure = chart("gantt"); figure.update(**gantt_state(timeline))
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import columns, drawing
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.gantt.nesting import innermost
from lib_dlhpc.explore.gantt.words import CALLS, gantt_words, last_to_join, seconds_computing
from lib_dlhpc.results.palette import KINDS, TERMS
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import STREAMS, Event, Timeline

SHOWN, MOST = 8, 16  # ranks: shown unless others are asked for, and what a chart has room for
LANES = dict(zip(STREAMS, (20.0, 14.0, 8.0, 8.0, 14.0), strict=True))  # px, their height
GAP = 11.0  # px between two ranks
FINEST = 300  # bars shorter than this part of the chart are joined with their like

Lanes = dict[tuple[int, str], tuple[float, float]]  # (rank, stream) -> its top and bottom
Piece = tuple[Event, str, float, float, str]  # what is drawn, its look, start, stop, more to say


class Look(NamedTuple):
    """How a bar is drawn."""

    color: str
    opacity: float = 1.0
    hatched: bool = False
    ink: str = "#000000"


APART = "weight gradients"
WHITE, ANY = "#ffffff", "currentColor"
# No two looks in one lane differ by their color alone: lightness or hatching differs as well.
LOOKS = {
    "forward": Look(TERMS["forward"]),
    "backward": Look(TERMS["backward"], ink=WHITE),
    APART: Look(KINDS[APART]),
    "update": Look(TERMS["update"], ink=WHITE),
    "idle": Look(TERMS["waiting for the slowest"], 0.35, True, ANY),
    "pipeline bubble": Look(TERMS["pipeline bubble"], 0.45, True, ANY),
    "communication": Look(TERMS["exposed communication"]),
    "waiting for the last rank": Look(TERMS["exposed communication"], 0.25, True, ANY),
    "input stall": Look(TERMS["input stall"], 0.35, True, ANY),
    "input": Look(TERMS["input stall"]),
    "checkpoint": Look(TERMS["checkpoint"]),
    "region": Look(KINDS["region"]),
    "sends": Look(KINDS["send"]),
    "receives": Look(KINDS["receive"], ink=WHITE),
    "collective": Look(TERMS["exposed communication"]),
}
LOOK_OF = {"wait": "idle", "bubble": "pipeline bubble", "send": "sends", "receive": "receives"}


def gantt(timeline: Timeline, title: str = "") -> Figure:
    """Return the Gantt chart of a timeline as a widget, with the same in words below it. title: the caption."""
    spec = dict(drawing("gantt"))
    if title:
        spec["usermeta"] = {**spec["usermeta"], "title": title}
    return Figure(spec, **gantt_state(timeline))


def gantt_state(timeline: Timeline, ranks: Iterable[int] | None = None) -> dict[str, Any]:
    """Return data, summary and signals for a Figure of the drawing "gantt".

    ranks: the ones to show; by default the slowest, the fastest and others evenly spaced. Messages in flight are not
    drawn; of regions within each other the innermost is. Raises SpecError for a rank that there is not and for more
    than 16.
    """
    whole = timeline.select((timeline.peer < 0) | timeline.where("", *CALLS))
    computing = seconds_computing(whole)
    shown = _chosen(computing) if ranks is None else _asked(ranks, timeline.ranks)
    last = last_to_join(whole)
    rows = np.flatnonzero(np.isin(whole.rank, shown))
    part, joined = innermost(whole.select(rows), last[rows])
    lanes = [name for i, name in enumerate(STREAMS) if i < 2 or (part.stream == i).any()]
    places, height = _places(shown, lanes)
    finest = float(np.ptp(np.append(part.start, part.stop))) / FINEST if len(part) else 0.0
    pieces = list(_pieces(_visible(part, whole, joined, finest), finest))
    used = {look for _, look, *_ in pieces}
    return {
        "data": {
            "bars": columns(_row(*piece, places, 2 * finest) for piece in pieces),
            "ranks": columns(_labels(computing, shown, places)),
            "key": columns(
                {"label": look, **LOOKS[look]._asdict()} for look in LOOKS if look in used
            ),
        },
        "summary": gantt_words(whole, shown, bool((last >= 0).any())),
        "signals": {"height": height},
    }


def _chosen(computing: NDArray[np.float64]) -> list[int]:
    """Return all ranks, or the slowest, the fastest and others evenly spaced."""
    count = len(computing)
    if count <= SHOWN:
        return list(range(count))
    spaced = np.linspace(0, count - 1, SHOWN - 2).round().astype(int).tolist()
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


def _visible(
    part: Timeline, whole: Timeline, joined: NDArray[np.intp], finest: float
) -> list[tuple[Event, float, int]]:
    """Return each event, until when it waits for ranks to join its exchange, and for which rank last.

    Neighbors of one kind that are too short to be seen are one event.
    """
    until = np.where(joined >= 0, whole.start[joined], part.start)
    order = np.lexsort((part.start, part.kind, part.stream, part.rank))
    kept: list[tuple[Event, float, int]] = []
    for event, end, whom in zip(
        part.select(order), until[order].tolist(), whole.rank[joined[order]].tolist(), strict=True
    ):
        if kept and _seen_as_one(kept[-1][0], event, finest):
            before, end, whom = kept.pop()
            name = f"{before.name.split(' to ')[0]} to {event.name}"
            stop, size = max(before.stop, event.stop), before.bytes + event.bytes
            event = before._replace(name=name, stop=stop, bytes=size)
        kept.append((event, end, whom))
    return kept


def _seen_as_one(before: Event, event: Event, finest: float) -> bool:
    longest = max(event.stop - event.start, before.stop - before.start)
    return before[:3] == event[:3] and max(event.start - before.stop, longest) < finest


def _pieces(events: Iterable[tuple[Event, float, int]], finest: float) -> Iterator[Piece]:
    """Yield the bars of each event: two where an exchange waits for ranks to join."""
    for event, until, whom in events:
        stalls = (event.stream, event.kind) == ("compute", "input")
        look = "input stall" if stalls else LOOK_OF.get(event.kind, event.kind)
        if event.name.startswith(APART):
            look = APART
        waited = until - event.start
        if waited > finest:
            more = f"; rank {whom:,} is the last to join, {show(waited, 's')} later"
            yield event, "waiting for the last rank", event.start, until, more
            yield event, look, until, event.stop, ""
        elif event.stop > event.start:
            yield event, look, event.start, event.stop, ""


def _row(
    event: Event, look: str, start: float, stop: float, more: str, places: Lanes, edged: float
) -> dict[str, Any]:
    """Return the row of a bar; one that lasts longer than `edged` has an edge."""
    top, bottom = places[event.rank, event.stream]
    size = f", {show(event.bytes, 'B')}" if event.bytes else ""
    when = f"{show(stop - start, 's')} from {show(start, 's')} on"
    return {
        "rank": event.rank,
        "look": look,
        "event": event.name,
        "start": start,
        "stop": stop,
        "seconds": stop - start,
        "bytes": event.bytes or None,
        "top": top,
        "bottom": bottom,
        "edge": 0.7 if stop - start > edged else 0.0,
        "words": "" if LOOKS[look].hatched else event.name,
        "details": f"rank {event.rank:,}, {event.name}: {when}{size}{more}",
        **LOOKS[look]._asdict(),
    }


def _labels(
    computing: NDArray[np.float64], shown: Sequence[int], places: Lanes
) -> Iterator[dict[str, Any]]:
    slowest, fastest = int(computing.argmax()), int(computing.argmin())
    compared = slowest != fastest and {slowest, fastest} <= set(shown)
    notes = {fastest: "fastest", slowest: "slowest"} if compared else {}
    for rank in shown:
        middle = places[rank, "compute"][1]
        yield {"words": f"rank {rank:,}", "note": notes.get(rank, ""), "middle": middle}
