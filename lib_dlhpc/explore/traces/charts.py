"""What the charts of the lesson on traces show: columns for their drawings, and the same in sentences."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.explore.blocks.bars import stacks
from lib_dlhpc.explore.blocks.charts import State, columns, stacked
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_quantity as show
from lib_dlhpc.timeline import Timeline
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
    "waits for a receiver": (palette.IDLE_LIGHT, 0.75, True),
    "waits at a collective": (palette.IDLE_DARK, 0.5, True),
    "moves data": (palette.COLLECTIVES, 0.35, False),
}
OF_WAIT = {
    "late sender": "waits for a sender",
    "late receiver": "waits for a receiver",
    "wait at collective": "waits at a collective",
}
# Of the mean rank of a coupled run.
TERMS = {
    "simulate": palette.INPUT,
    "train": palette.FORWARD,
    "exchange": palette.COLLECTIVES,
    "wait for samples": palette.IDLE_DARK,
    "wait for room": palette.IDLE_LIGHT,
    "idle": palette.IDLE,
}
IDLE = ("wait for samples", "wait for room", "idle")
MOST_LINES = 400  # messages drawn
EFFICIENCIES = ("parallel", "load balance", "communication", "serialization", "transfer")
Window = tuple[float, float]  # s: from when to when


class Bar(NamedTuple):
    """What one rank does for a while."""

    rank: int
    what: str
    name: str
    start: float  # s
    stop: float


def bars_of(timeline: Timeline) -> list[Bar]:
    """Return what each rank does, without gaps: calls, split into waiting and the rest; work in between."""
    table = in_order(timeline)
    late = waits(calls(table), busy(table))
    waited, what = np.zeros(len(table)), np.full(len(table), "", object)
    kinds = (late.late_sender, late.late_receiver, late.collective)
    for kind, one in zip(OF_WAIT.values(), kinds, strict=True):
        longer = one.seconds > waited[one.row]
        waited[one.row[longer]], what[one.row[longer]] = one.seconds[longer], kind
    drawn = table.where("compute") & ~table.where("", "region")
    drawn |= table.where("communication") & (table.stop > table.start)
    now = np.full(table.ranks, table.start.min(initial=0.0)).tolist()
    bars: list[Bar] = []
    for event, seconds, waits_for in zip(
        table.select(drawn), waited[drawn].tolist(), what[drawn], strict=True
    ):
        begun = now[event.rank]
        since = max(event.start, begun)
        until = min(max(since, event.start + seconds), event.stop)
        parts = (
            ("works", "work", begun, event.start),
            (waits_for, event.name, since, until),
            ("reads" if event.kind == "input" else "moves data", event.name, until, event.stop),
        )
        bars += [Bar(event.rank, *part) for part in parts if part[3] > part[2]]
        now[event.rank] = max(begun, event.stop)
    return bars


def trace_state(
    timeline: Timeline, mark: Place | None = None, window: Window | None = None
) -> State:
    """Return the chart "traces_gantt". mark: where to look; window: from when to when to draw, s."""
    bars = bars_of(timeline)
    zero = float(timeline.start.min(initial=0.0))
    low, high = window or (zero, float(timeline.stop.max(initial=0.0)))

    def within(time: Any) -> Any:
        return (np.clip(time, low, high) - zero).tolist()

    shown = [bar for bar in bars if bar.start < high and bar.stop > low]
    seen = [mark] if mark and mark.stop >= low and mark.start <= high else []
    data: dict[str, dict[str, Any]] = {
        "bars": columns(_row(bar, within(bar.start), within(bar.stop)) for bar in shown),
        "messages": _messages(timeline, low, high, within),
        "mark": {
            "x": [within(place.start) for place in seen],
            "x2": [within(place.stop) for place in seen],
            "top": [place.rank + 0.04 for place in seen],
            "bottom": [place.rank + 0.96 for place in seen],
            "words": [f"▼ here: {place.name}" for place in seen],
        },
        **_frame(timeline.ranks, low - zero, high - zero),
    }
    words = _trace_words(bars)
    if mark is not None:
        when = f"{show(mark.start - zero, 's')} to {show(mark.stop - zero, 's')}"
        words += f" Marked: rank {mark.rank}, {mark.name}, from {when}."
    return data, words


def _messages(
    timeline: Timeline, low: float, high: float, within: Callable[[Any], Any]
) -> dict[str, Any]:
    found = calls(in_order(timeline))
    table, sends, receives = found.table, found.sends, found.receives
    seen = (table.stop[receives] > low) & (table.start[sends] < high)
    sends, receives = sends[seen][:MOST_LINES], receives[seen][:MOST_LINES]
    return {
        "x": within(table.start[sends]),
        "x2": within(table.stop[receives]),
        "y": (table.rank[sends] + 0.5).tolist(),
        "y2": (table.rank[receives] + 0.5).tolist(),
    }


def _trace_words(bars: Sequence[Bar]) -> str:
    spent = dict.fromkeys(LOOKS, 0.0)
    for bar in bars:
        spent[bar.what] += bar.stop - bar.start
    whole = sum(spent.values())
    shares = {what: seconds / whole for what, seconds in spent.items()}
    said = ", ".join(f"{what} {share:.0%}" for what, share in shares.items() if share >= 0.005)
    return f"In the whole run, of the time of all ranks: {said}."


def ranks_state(analysis: Analysis) -> State:
    """Return the chart "traces_ranks": what becomes of the time of each rank, s."""
    parts, ranks = rank_parts(analysis), range(analysis.ranks)
    bars = [
        Bar(rank, what, "", start, stop)
        for rank in ranks
        for what, start, stop in stacked({name: float(s[rank]) for name, s in parts.items()})
    ]
    waiting = sum(seconds for what, seconds in parts.items() if what.startswith("waits"))
    each = ", ".join(f"rank {r} {show(float(waiting[r]), 's')}" for r in ranks)
    data: dict[str, dict[str, Any]] = {
        "bars": columns(_row(bar, bar.start, bar.stop) for bar in bars),
        **_frame(analysis.ranks, 0.0, analysis.span),
    }
    return data, f"Waiting for other ranks: {each}."


def rank_parts(analysis: Analysis) -> dict[str, Any]:
    """Return the s of each rank by what it does, (ranks,) each."""
    waited = {OF_WAIT[kind]: seconds for kind, seconds in analysis.waits.items()}
    moves = np.maximum(analysis.exposed - sum(waited.values()), 0.0)
    return {"works": analysis.compute, "reads": analysis.stalled, **waited, "moves data": moves}


def _row(bar: Bar, start: float, stop: float) -> dict[str, Any]:
    """Return the row of a bar of which the chart shows the part from `start` to `stop`."""
    _, tall, hatched = LOOKS[bar.what]
    whose = f"rank {bar.rank}, {bar.name}" if bar.name else f"rank {bar.rank}"
    return {
        "rank": f"rank {bar.rank}",
        "what": bar.what,
        "start": start,
        "stop": stop,
        "seconds": bar.stop - bar.start,
        "top": bar.rank + 0.5 - 0.4 * tall,
        "bottom": bar.rank + 0.5 + 0.4 * tall,
        "hatched": hatched,
        "details": f"{whose}: {bar.what}, {show(bar.stop - bar.start, 's')}",
    }


def _frame(ranks: int, low: float, high: float) -> dict[str, dict[str, Any]]:
    rows = columns({"name": f"rank {rank}", "middle": rank + 0.5} for rank in range(ranks))
    return {"rows": rows, "room": {"x": [low, high], "y": [0.0, float(ranks)]}}


def efficiency_state(analysis: Analysis) -> State:
    """Return the chart "traces_efficiency": the five factors of POP."""
    rows = [
        {"name": name, "value": value, "words": f"{value:.0%}"}
        for name in EFFICIENCIES
        for value in [float(getattr(analysis.efficiency, name.replace(" ", "_")))]
    ]
    said = ", ".join(f"{row['name']} {row['words']}" for row in rows)
    return {"bars": columns(rows)}, f"Efficiencies: {said}."


def coupled_state(ways: Mapping[str, Mapping[str, float]], now: str = "") -> State:
    """Return the chart "traces_coupled": s of the mean rank by term, for each placement. now: the chosen one."""
    whole = {name: sum(terms.values()) for name, terms in ways.items()}
    words = {name: show(x, "s") + "  ◀ chosen" * (name == now) for name, x in whole.items()}
    least, most = (pick(whole, key=whole.__getitem__) for pick in (min, max))
    said = f"The fastest placement is {least}, {show(whole[least], 's')}; the slowest {most}, {show(whole[most], 's')}."
    room = {"x": [0.0, 1.25 * max(whole.values())]}
    return stacks(ways, TERMS, "s", words=words) | {"room": room}, said
