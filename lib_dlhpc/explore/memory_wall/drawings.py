"""The drawings of the lesson on memory, in Altair."""

from collections.abc import Callable
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import HALO, HATCH, SI, axis_of, finished, tooltip_of
from lib_dlhpc.explore.blocks.line_drawings import line_marks
from lib_dlhpc.explore.memory_wall.charts import HIGH, KINDS, LINES
from lib_dlhpc.results import palette
from lib_dlhpc.results.palette import SERIES

ALWAYS, PASSING, WALL = palette.BACKWARD, palette.FORWARD, SERIES[1]
SECONDS = [d * 10.0**k for k in range(-4, 6) for d in (1, 2, 5)]
BYTES = [d * 10.0**k for k in range(6, 14) for d in (1, 2, 5)]
RATES = [10.0**k for k in range(7, 14)]


def memory_chart() -> dict[str, Any]:
    """The memory ledger as a staircase up to the wall; what lies beyond is hatched."""
    x = alt.X("start:Q", title="memory of one device", axis=axis_of(labelExpr=SI.format("B")))
    x = x.scale(domainMin=0, nice=False)
    y = alt.Y("term:N", title=None, sort=alt.EncodingSortField("order", "min"))
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=160))
    terms = alt.Chart(alt.NamedData("terms"))
    steps = terms.encode(x=x, x2="stop:Q", y=y)
    color = alt.Color("term:N", legend=None).scale(
        domain=list(palette.MEMORY), range=list(palette.MEMORY.values())
    )
    bars = steps.mark_bar().encode(color=color, tooltip=tooltip_of("term", "size"))
    over = steps.transform_filter("datum.over > 0").encode(x="over_start:Q")
    hatched = over.mark_bar(fill=HATCH, tooltip=None)
    size = terms.mark_text(align="left", dx=5, **HALO).encode(x="stop:Q", y=y, text="size:N")
    wall = alt.Chart(alt.NamedData("wall")).encode(x="capacity:Q")
    beyond = wall.mark_rect(opacity=0.08, color="#d55e00").encode(x2="end:Q")
    rule = wall.mark_rule(strokeWidth=2.5, color="#d55e00")
    verdict = wall.mark_text(
        align=alt.expr("datum.side"), baseline="bottom", dy=-5, fontSize=13, fontWeight="bold"
    )
    verdict = verdict.encode(y=alt.value(0), text="words:N")
    chart = alt.layer(beyond, bars, hatched, rule, size, verdict)
    return finished(
        chart,
        "What one device must hold",
        220,
        left=150,
        top=26,
        right=70,
        bottom=42,
        table={"terms": {"term": "", "size": "size"}},
    )


def course_chart() -> dict[str, Any]:
    """Memory against time within a step: what is always there, what comes and goes, the wall."""
    x = alt.X("time:Q", title="time in a step").scale(nice=False)
    x = x.axis(axis_of(labelExpr=SI.format("s"), grid=False))
    y = alt.Y("bytes:Q", title="memory").scale(nice=False, zero=True)
    y = y.axis(axis_of(labelExpr=SI.format("B"), tickCount=5))
    held = alt.Chart(alt.NamedData("held")).encode(x=x)
    moving = held.mark_area(interpolate="step-after", color=PASSING, line=False)
    moving = moving.encode(y=y, y2="fixed:Q")
    fixed = held.mark_area(interpolate="step-after", color=ALWAYS).encode(y=alt.Y("fixed:Q"))
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(y=alt.Y("y:Q"))
    wall = alt.Chart(alt.NamedData("wall")).encode(y=alt.Y("y:Q"))
    beyond = wall.mark_rect(opacity=0.08, color=WALL).encode(y2="top:Q")
    rule = wall.mark_rule(strokeWidth=2.5, color=WALL)
    said = wall.mark_text(align="right", baseline="bottom", dx=-6, dy=-4, **HALO)
    said = said.encode(x=alt.value(alt.expr("width")), text="words:N")
    phases = alt.Chart(alt.NamedData("phases")).encode(x=x)
    edges = phases.mark_rule(strokeDash=[2, 3], opacity=0.6)
    names = phases.mark_text(align="left", baseline="bottom", dx=4, dy=-3)
    names = names.encode(y=alt.value(0), text="words:N")
    peak = alt.Chart(alt.NamedData("peak")).encode(x=x, y=y)
    point = peak.mark_point(shape="diamond", filled=True, size=110, opacity=1, color="currentColor")
    words = peak.mark_text(
        fontWeight="bold", align=alt.expr("datum.side"), dx=alt.expr("datum.shift"), dy=-9, **HALO
    ).encode(text="words:N")
    return finished(
        alt.layer(room, beyond, moving, fixed, edges, names, rule, said, point, words),
        "When is the memory fullest? (dark: always there; light: only for a part of the step)",
        210,
        left=74,
        right=24,
        top=24,
        bottom=44,
        table={"peak": {"words": "peak"}, "phases": {"words": "phase", "time": "begins at (s)"}},
    )


def ways_chart() -> dict[str, Any]:
    """Time of a step against memory of a GPU, a point for each way, and the wall."""
    x = alt.X("memory:Q", title="memory of a GPU at the peak").scale(type="log", nice=False)
    x = x.axis(axis_of(labelExpr=SI.format("B"), values=BYTES, labelOverlap=True, grid=False))
    y = alt.Y("seconds:Q", title="time of one step").scale(type="log", nice=False)
    y = y.axis(axis_of(labelExpr=SI.format("s"), values=SECONDS, labelOverlap=True))
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0)
    room = room.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))
    names = list(KINDS)
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=0,
        legendY=-50,
        direction="horizontal",
        columns=3,
        labelLimit=0,
        columnPadding=16,
        symbolSize=90,
    )
    color = alt.Color("kind:N", legend=legend).scale(
        domain=names, range=[KINDS[n][0] for n in names]
    )
    shape = alt.Shape("kind:N", legend=legend).scale(
        domain=names, range=[KINDS[n][1] for n in names]
    )
    ways = alt.Chart(alt.NamedData("ways")).encode(x=x, y=y)
    points = ways.mark_point(filled=True, size=110, opacity=1).encode(
        color=color, shape=shape, tooltip=tooltip_of("details")
    )
    words = ways.mark_text(
        align=alt.expr("datum.side"),
        dx=alt.expr("datum.dx"),
        dy=alt.expr("datum.dy"),
        baseline="middle",
        fontSize=11,
        **HALO,
    ).encode(text="label:N")
    wall = alt.Chart(alt.NamedData("wall")).encode(x=alt.X("x:Q"))
    beyond = wall.mark_rect(opacity=0.08, color=WALL).encode(x2="end:Q")
    hatched = wall.mark_rect(fill=HATCH, fillOpacity=0.12, tooltip=None).encode(x2="end:Q")
    rule = wall.mark_rule(strokeWidth=2.5, color=WALL)
    said = wall.mark_text(align="right", baseline="top", dx=-6, dy=4, fontWeight="bold", **HALO)
    said = said.encode(y=alt.value(0), text="words:N")
    return finished(
        alt.layer(room, beyond, hatched, rule, said, points, words),
        "What does each way cost? (in brackets, hatched: does not fit)",
        int(HIGH),
        left=74,
        right=24,
        top=66,
        bottom=44,
        table={"ways": {"name": "way", "kind": "", "memory": "memory (B)", "seconds": "step (s)"}},
    )


def link_chart() -> dict[str, Any]:
    """Time of a step against the bandwidth of the host link."""
    x = alt.X("x:Q", title="bandwidth of the host link, each direction").scale(
        type="log", nice=False
    )
    x = x.axis(axis_of(labelExpr=SI.format("B/s"), values=RATES, grid=False))
    y = alt.Y("y:Q", title="time of one step").scale(type="log", nice=False, padding=14)
    y = y.axis(axis_of(labelExpr=SI.format("s"), values=SECONDS, labelOverlap=True))
    lines = line_marks(x, y, list(LINES), LINES)
    now = alt.Chart(alt.NamedData("now")).encode(x=x)
    marker = now.mark_rule(strokeWidth=2, opacity=0.5)
    beside = now.mark_text(fontWeight="bold", align="right", dx=-6, dy=alt.expr("datum.dy"), **HALO)
    beside = beside.encode(y=y, text="words:N")
    required = alt.Chart(alt.NamedData("required")).encode(x=x)
    edge = required.mark_rule(strokeWidth=2, strokeDash=[6, 3], color=WALL)
    said = required.mark_text(
        align=alt.expr("datum.side"), dx=alt.expr("datum.shift"), baseline="bottom", dy=-4
    ).encode(y=alt.value(0), text="words:N")
    links = alt.Chart(alt.NamedData("links")).encode(x=x)
    ticks = links.mark_rule(strokeDash=[1, 4], opacity=0.5)
    named = links.mark_text(angle=270, align="left", baseline="bottom", dx=4, fontSize=10)
    named = named.encode(y=alt.value(alt.expr("height")), text="words:N")
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(y=alt.Y("y:Q"))
    chart = alt.layer(room, ticks, named, marker, edge, said, *lines, beside)
    return finished(
        chart,
        "How fast must the host link be?",
        240,
        left=74,
        right=110,
        top=24,
        bottom=44,
        table={
            "lines": {"line": "way", "x": "bandwidth (B/s)", "y": "step (s)"},
            "required": {"words": ""},
        },
    )


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "memory": memory_chart,
    "memory_course": course_chart,
    "memory_ways": ways_chart,
    "memory_link": link_chart,
}
