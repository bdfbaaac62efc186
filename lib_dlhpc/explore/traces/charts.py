"""What the charts of the lesson on traces show: columns for their drawings, and the same in sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.explore.blocks.charts import State, append
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import KINDS, Timeline
from lib_dlhpc.timeline.analysis import Analysis, Place
from lib_dlhpc.timeline.analysis.busy import busy
from lib_dlhpc.timeline.analysis.calls import calls
from lib_dlhpc.timeline.analysis.waits import waits
from lib_dlhpc.timeline.spans import in_order

# Color, height in its lane, and whether hatched: no two differ by their color alone.
LOOKS = {
    "works": (palette.FORWARD, 1.0, False),
    "reads": (palette.INPUT, 0.75, False),
    "waits for a sender": (palette.IDLE, 1.0, True),
    "waits for a receiver": (palette.BUBBLE, 0.75, True),
    "waits at a collective": (palette.SERIES[3], 0.5, True),
    "moves data": (palette.COLLECTIVES, 0.35, False),
}
OF_WAIT = {
    "late sender": "waits for a sender",
    "late receiver": "waits for a receiver",
    "wait at collective": "waits at a collective",
}
MOST_LINES = 400  # messages drawn
SEND, RECEIVE, INPUT, REGION = (KINDS.index(k) for k in ("send", "receive", "input", "region"))
EFFICIENCIES = ("parallel", "load balance", "communication", "serialisation", "transfer")


@dataclass(frozen=True)
class Bar:
    """What one rank does for a while."""

    rank: int
    what: str
    name: str
    start: float  # s
    stop: float


def bars_of(timeline: Timeline) -> list[Bar]:
    """Return what each rank does, without gaps: calls, split into waiting and the rest; work in between."""
    table = in_order(timeline)
    found = calls(table)
    late = waits(found, busy(table))
    waited, what = np.zeros(len(table)), np.full(len(table), "", object)
    for kind, one in (
        ("late sender", late.late_sender),
        ("late receiver", late.late_receiver),
        ("wait at collective", late.collective),
    ):
        longer = one.seconds > waited[one.row]
        waited[one.row[longer]], what[one.row[longer]] = one.seconds[longer], OF_WAIT[kind]
    bars: list[Bar] = []
    for rank in range(table.ranks):
        now = float(table.start.min(initial=0.0))
        for row in np.flatnonzero((table.rank == rank) & _drawn(table)).tolist():
            start, stop = float(table.start[row]), float(table.stop[row])
            name = table.names[table.name[row]]
            if start > now:
                bars.append(Bar(rank, "works", "work", now, start))
            start = max(start, now)
            until = min(max(start, float(table.start[row]) + float(waited[row])), stop)
            if until > start:
                bars.append(Bar(rank, str(what[row]), name, start, until))
            if stop > until:
                kind = "reads" if table.kind[row] == INPUT else "moves data"
                bars.append(Bar(rank, kind, name, until, stop))
            now = max(now, stop)
    return bars


def trace_state(
    timeline: Timeline, mark: Place | None = None, window: tuple[float, float] | None = None
) -> State:
    """Columns of the chart "traces_gantt". mark: where to look; window: from when to when to draw, s."""
    bars = bars_of(timeline)
    zero = float(timeline.start.min(initial=0.0))
    low, high = window or (zero, float(timeline.stop.max(initial=0.0)))
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "rank",
            "what",
            "start",
            "stop",
            "seconds",
            "top",
            "bottom",
            "hatched",
            "details",
        )
    }
    for bar in bars:
        start, stop = max(bar.start, low), min(bar.stop, high)
        if stop <= start:
            continue
        _, tall, hatched = LOOKS[bar.what]
        lasts = show(bar.stop - bar.start, "s")
        append(
            columns,
            rank=f"rank {bar.rank}",
            what=bar.what,
            start=start - zero,
            stop=stop - zero,
            seconds=bar.stop - bar.start,
            top=bar.rank + 0.5 - 0.4 * tall,
            bottom=bar.rank + 0.5 + 0.4 * tall,
            hatched=hatched,
            details=f"rank {bar.rank}, {bar.name}: {bar.what}, {lasts}",
        )
    ranks = timeline.ranks
    data: dict[str, dict[str, Any]] = {
        "bars": columns,
        "messages": _messages(timeline, low, high, zero),
        "mark": _mark(mark, low, high, zero),
        "rows": {
            "name": [f"rank {r}" for r in range(ranks)],
            "middle": [r + 0.5 for r in range(ranks)],
        },
        "room": {"x": [low - zero, high - zero], "y": [0.0, float(ranks)]},
    }
    return data, _trace_words(bars, ranks, mark, zero)


def ranks_state(analysis: Analysis) -> State:
    """Columns of the chart "traces_ranks": what becomes of the time of each rank, s."""
    parts = rank_parts(analysis)
    columns: dict[str, list[Any]] = {
        n: []
        for n in ("rank", "what", "start", "stop", "seconds", "hatched", "top", "bottom", "details")
    }
    for rank in range(analysis.ranks):
        start = 0.0
        for what, seconds in parts.items():
            lasts = float(seconds[rank])
            if lasts > 0:
                tall = LOOKS[what][1]
                append(
                    columns,
                    rank=f"rank {rank}",
                    what=what,
                    start=start,
                    stop=start + lasts,
                    seconds=lasts,
                    hatched=LOOKS[what][2],
                    top=rank + 0.5 - 0.4 * tall,
                    bottom=rank + 0.5 + 0.4 * tall,
                    details=f"rank {rank}: {what}, {show(lasts, 's')}",
                )
            start += lasts
    ranks = analysis.ranks
    rows = {"name": [f"rank {r}" for r in range(ranks)], "middle": [r + 0.5 for r in range(ranks)]}
    room = {"x": [0.0, analysis.span], "y": [0.0, float(ranks)]}
    waiting = sum(seconds for what, seconds in parts.items() if what.startswith("waits"))
    each = ", ".join(f"rank {r} {show(float(waiting[r]), 's')}" for r in range(ranks))
    return {"bars": columns, "rows": rows, "room": room}, f"Waiting for other ranks: {each}."


def rank_parts(analysis: Analysis) -> dict[str, Any]:
    """Return the s of each rank by what it does, (ranks,) each."""
    waited = {OF_WAIT[kind]: seconds for kind, seconds in analysis.waits.items()}
    moves = np.maximum(analysis.exposed - sum(waited.values()), 0.0)
    return {"works": analysis.compute, "reads": analysis.stalled, **waited, "moves data": moves}


def efficiency_state(before: Analysis) -> State:
    """Columns of the chart "traces_efficiency": the five factors of POP."""
    values = efficiencies(before)
    columns = {
        "name": list(values),
        "value": list(values.values()),
        "words": [f"{value:.0%}" for value in values.values()],
    }
    said = ", ".join(f"{name} {value:.0%}" for name, value in values.items())
    return {"bars": columns}, f"Efficiencies: {said}."


def efficiencies(analysis: Analysis) -> dict[str, float]:
    """Return the efficiencies by the names of POP."""
    efficiency = analysis.efficiency
    return {name: float(getattr(efficiency, name.replace(" ", "_"))) for name in EFFICIENCIES}


def coupled_state(ways: Sequence[tuple[str, Mapping[str, float]]], now: str) -> State:
    """Columns of the chart "traces_coupled": s of the mean rank by term, for each placement. now: the chosen one."""
    columns: dict[str, list[Any]] = {
        n: [] for n in ("way", "term", "start", "stop", "seconds", "hatched")
    }
    ends: dict[str, list[Any]] = {"way": [], "x": [], "words": []}
    for name, terms in ways:
        start = 0.0
        for term, seconds in terms.items():
            if seconds > 0:
                append(
                    columns,
                    way=name,
                    term=term,
                    start=start,
                    stop=start + seconds,
                    seconds=seconds,
                    hatched=term.startswith("wait") or term == "idle",
                )
            start += seconds
        words = f"{show(start, 's')}{'  ◀ chosen' if name == now else ''}"
        append(ends, way=name, x=start, words=words)
    most = max(sum(terms.values()) for _, terms in ways)
    times = ", ".join(f"{name} {show(sum(terms.values()), 's')}" for name, terms in ways)
    data = {"bars": columns, "ends": ends, "room": {"x": [0.0, 1.25 * most]}}
    return data, f"A run takes, by placement: {times}."


def _drawn(table: Timeline) -> Any:
    """Rows that are a stretch of their rank's time: calls, and its waits."""
    still = table.where("compute") & (table.kind != REGION)
    return (table.where("communication") & (table.stop > table.start)) | still


def _messages(timeline: Timeline, low: float, high: float, zero: float) -> dict[str, list[Any]]:
    found = calls(in_order(timeline))
    table, sends, receives = found.table, found.sends, found.receives
    seen = (table.stop[receives] > low) & (table.start[sends] < high)
    sends, receives = sends[seen][:MOST_LINES], receives[seen][:MOST_LINES]
    x, x2 = np.clip(table.start[sends], low, high), np.clip(table.stop[receives], low, high)
    return {
        "x": (x - zero).tolist(),
        "x2": (x2 - zero).tolist(),
        "y": (table.rank[sends] + 0.5).tolist(),
        "y2": (table.rank[receives] + 0.5).tolist(),
    }


def _mark(mark: Place | None, low: float, high: float, zero: float) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {n: [] for n in ("x", "x2", "top", "bottom", "words")}
    if mark is not None and mark.stop >= low and mark.start <= high:
        start, stop = max(mark.start, low), min(mark.stop, high)
        append(
            columns,
            x=start - zero,
            x2=stop - zero,
            top=mark.rank + 0.04,
            bottom=mark.rank + 0.96,
            words=f"▼ here: {mark.name}",
        )
    return columns


def _trace_words(bars: Sequence[Bar], ranks: int, mark: Place | None, zero: float) -> str:
    said = []
    for rank in range(ranks):
        own = [bar for bar in bars if bar.rank == rank]
        sums = {what: sum(b.stop - b.start for b in own if b.what == what) for what in LOOKS}
        parts = ", ".join(f"{what} {show(s, 's')}" for what, s in sums.items() if s > 0)
        said.append(f"rank {rank} {parts}")
    words = "In the whole run: " + "; ".join(said) + "."
    if mark is not None:
        words += (
            f" Marked: rank {mark.rank}, {mark.name}, from {show(mark.start - zero, 's')} to"
            f" {show(mark.stop - zero, 's')}."
        )
    return words
