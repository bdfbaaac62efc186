"""The drawings of the lesson on input, in Altair."""

from collections.abc import Callable
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import (
    HALO,
    HATCH,
    PERCENT,
    SI,
    WHOLE,
    axis_of,
    finished,
    tooltip_of,
)
from lib_dlhpc.explore.blocks.line_drawings import by_two, line_marks, point
from lib_dlhpc.explore.io_bottleneck.charts import LINES
from lib_dlhpc.results.palette import SERIES

BLUE, RED, GREEN, GRAY = SERIES[0], SERIES[1], SERIES[2], SERIES[6]
RATES = [10.0**k for k in range(10)]
ORDER = alt.EncodingSortField("order", "min")  # of rows, for layers of one chart show them in turn
BYTES = [d * 10.0**k for k in range(3, 14) for d in (1, 3)]


def limits_chart() -> dict[str, Any]:
    """Samples/s that each limit allows; the one that holds the run up is hatched."""
    x = alt.X("start:Q", title="samples a second").scale(type="log", nice=False)
    x = x.axis(axis_of(labelExpr="format(datum.value, '~s')", values=RATES))
    y = alt.Y("limit:N", title=None, sort=ORDER)
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=170))
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(x=alt.X("x:Q"))
    bars = alt.Chart(alt.NamedData("bars"))
    spans = bars.encode(x=x, x2="rate:Q", y=y)
    free = spans.transform_filter("!datum.holds").mark_bar(color=BLUE)
    held = spans.transform_filter("datum.holds").mark_bar(color=RED)
    hatched = spans.transform_filter("datum.holds").mark_bar(fill=HATCH, fillOpacity=0.25)
    words = bars.mark_text(align="left", dx=5, **HALO)
    words = words.encode(x=alt.X("rate:Q"), y=y, text="words:N")
    rule = alt.Chart(alt.NamedData("demand")).encode(x=alt.X("x:Q"))
    line = rule.mark_rule(strokeWidth=2.5, strokeDash=[6, 3])
    said = rule.mark_text(
        align=alt.expr("datum.side"),
        dx=alt.expr("datum.shift"),
        baseline="bottom",
        dy=-4,
        fontWeight="bold",
    ).encode(y=alt.value(0), text="words:N")
    return finished(
        alt.layer(room, free, held, hatched, line, words, said),
        "How many samples a second does each limit allow?",
        150,
        left=136,
        right=60,
        top=26,
        bottom=44,
        table={"bars": {"limit": "limit", "words": "samples/s"}, "demand": {"words": ""}},
    )


def reader_chart() -> dict[str, Any]:
    """Seconds of one reader for a sample, by what it does."""
    x = alt.X("seconds:Q", title="time of one reader for one sample").scale(nice=False, zero=True)
    x = x.axis(axis_of(labelExpr=SI.format("s"), tickCount=5))
    y = alt.Y("part:N", title=None, sort=None)
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=170))
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(x=alt.X("x:Q"))
    bars = alt.Chart(alt.NamedData("bars")).encode(x=x, y=y)
    words = bars.mark_text(align="left", dx=5, **HALO).encode(text="words:N")
    return finished(
        alt.layer(room, bars.mark_bar(color=GREEN), words),
        "Where does the time of a reader go?",
        120,
        left=100,
        right=60,
        top=12,
        bottom=44,
        table={"bars": {"part": "", "words": "time, share"}},
    )


def cache_chart() -> dict[str, Any]:
    """Hit rate of one policy against the cached fraction of the data set."""
    x = alt.X("x:Q", title="cached fraction of the data set").scale(domain=[0, 1], nice=False)
    x = x.axis(axis_of(labelExpr=PERCENT, tickCount=5, grid=False))
    y = alt.Y("y:Q", title="hit rate").scale(domain=[0, 1.05], nice=False)
    y = y.axis(axis_of(labelExpr=PERCENT, tickCount=5))
    chart = alt.layer(*line_marks(x, y, ("cached fraction", "hit rate"), LINES), *point(x, y))
    return finished(
        chart,
        "How often does the policy hit?",
        220,
        left=64,
        right=100,
        top=14,
        bottom=44,
        table={"lines": {"line": "", "x": "share cached", "y": "share found"}},
    )


def policies_chart() -> dict[str, Any]:
    """Hit rate of each rule at one size of the cache."""
    x = alt.X("hit:Q", title="hit rate").scale(domain=[0, 1.18], nice=False)
    x = x.axis(axis_of(labelExpr=PERCENT, values=[0, 0.25, 0.5, 0.75, 1]))
    y = alt.Y("policy:N", title=None, sort=ORDER)
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=190))
    bars = alt.Chart(alt.NamedData("bars")).encode(x=x, y=y)
    plain = bars.transform_filter("!datum.chosen").mark_bar(color=SERIES[5])
    chosen = bars.transform_filter("datum.chosen").mark_bar(color=BLUE)
    words = bars.mark_text(align="left", dx=5, **HALO).encode(text="words:N")
    rule = alt.Chart(alt.NamedData("share")).encode(x=alt.X("x:Q"))
    line = rule.mark_rule(strokeWidth=2.5, strokeDash=[6, 3])
    said = rule.mark_text(
        align=alt.expr("datum.side"),
        dx=alt.expr("datum.shift"),
        baseline="bottom",
        dy=-4,
        fontWeight="bold",
    ).encode(y=alt.value(0), text="words:N")
    return finished(
        alt.layer(plain, chosen, line, words, said),
        "Which policy hits most often?",
        170,
        left=178,
        right=24,
        top=26,
        bottom=44,
        table={"bars": {"policy": "policy", "words": "hits"}},
    )


def efficiency_chart() -> dict[str, Any]:
    """What is left of each node against nodes, on FanStore and on the shared file system."""
    x = by_two("nodes")
    y = alt.Y("y:Q", title="rate of a node over one that never waits")
    y = y.scale(domain=[0, 1.1], nice=False).axis(axis_of(labelExpr=PERCENT, tickCount=5))
    now = alt.Chart(alt.NamedData("now")).encode(x=x)
    marker = now.mark_rule(strokeWidth=2, opacity=0.5)
    beside = now.mark_text(fontWeight="bold", align="right", dx=-6, dy=alt.expr("datum.dy"), **HALO)
    points = alt.Chart(alt.NamedData("published")).encode(x=x, y=y)
    star = points.mark_point(
        shape="triangle-up",
        size=130,
        filled=False,
        strokeWidth=2.5,
        opacity=1,
        color="currentColor",
    ).encode(tooltip=tooltip_of("words"))
    names = ("never waiting", "shared file system", "FanStore")
    chart = alt.layer(
        marker, *line_marks(x, y, names, LINES), star, beside.encode(y=y, text="words:N")
    )
    return finished(
        chart,
        "How efficient is each node? (triangle: published, over 90 %)",
        220,
        left=64,
        right=130,
        top=14,
        bottom=44,
        table={"lines": {"line": "", "x": "nodes", "y": "left"}, "published": {"words": ""}},
    )


def capacity_chart() -> dict[str, Any]:
    """Bytes that a node keeps of the data set against nodes, and what its SSD holds."""
    x = by_two("nodes")
    y = alt.Y("y:Q", title="data in each node").scale(type="log", nice=False)
    y = y.axis(axis_of(labelExpr=SI.format("B"), values=BYTES, labelOverlap=True))
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(y=alt.Y("y:Q"))
    line = alt.Chart(alt.NamedData("line")).encode(x=x, y=y)
    drawn = line.mark_line(strokeWidth=2, color=BLUE, point={"size": 40, "color": BLUE})
    wall = alt.Chart(alt.NamedData("wall")).encode(y=alt.Y("y:Q"))
    beyond = wall.mark_rect(opacity=0.08, color=RED).encode(y2="top:Q")
    hatched = wall.mark_rect(fill=HATCH, fillOpacity=0.12, tooltip=None).encode(y2="top:Q")
    rule = wall.mark_rule(strokeWidth=2.5, color=RED)
    said = wall.mark_text(align="right", baseline="bottom", dx=-6, dy=-4, fontWeight="bold", **HALO)
    said = said.encode(x=alt.value(alt.expr("width")), text="words:N")
    chart = alt.layer(room, beyond, hatched, rule, drawn, said, *point(x, y))
    return finished(
        chart,
        "Does its part of the data fit into a node? (hatched: no)",
        170,
        left=74,
        right=24,
        top=14,
        bottom=44,
        table={"line": {"x": "nodes", "y": "in each (B)"}, "wall": {"words": ""}},
    )


def volume_chart() -> dict[str, Any]:
    """Bytes read and sent against the batch of a device."""
    x = alt.X("x:Q", title="samples of each device in a step").scale(type="log", base=2, nice=False)
    x = x.axis(axis_of(labelExpr=WHOLE, tickCount=12, grid=False))
    y = alt.Y("y:Q", title="moved by each device").scale(type="log", nice=False, padding=16)
    y = y.axis(axis_of(labelExpr=SI.format("B"), values=BYTES, labelOverlap=True))
    now = alt.Chart(alt.NamedData("now")).encode(x=x)
    marker = now.mark_rule(strokeWidth=2, opacity=0.5)
    beside = now.mark_text(fontWeight="bold", align="right", dx=-6, dy=alt.expr("datum.dy"), **HALO)
    chart = alt.layer(
        marker, *line_marks(x, y, ("read", "sent"), LINES), beside.encode(y=y, text="words:N")
    )
    return finished(
        chart,
        "What does a device read, and what does it send?",
        190,
        left=74,
        right=70,
        top=14,
        bottom=44,
        table={"lines": {"line": "", "x": "batch", "y": "bytes"}},
    )


def measured_chart() -> dict[str, Any]:
    """Files/s of one loader on a folder and on a store: predicted, simulated, measured."""
    x = alt.X("rate:Q", title="files a second, all ranks").scale(nice=False, zero=True)
    x = x.axis(axis_of(labelExpr="format(datum.value, '~s')", tickCount=5))
    y = alt.Y("row:N", title=None, sort=ORDER)
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=190))
    bars = alt.Chart(alt.NamedData("bars")).encode(x=x, y=y)
    real = bars.transform_filter("datum.way == 'measured'").mark_bar(color=BLUE)
    beside = bars.transform_filter("datum.way != 'measured'").mark_bar(color=GRAY)
    words = bars.mark_text(align="left", dx=5, **HALO).encode(text="words:N")
    return finished(
        alt.layer(beside, real, words),
        "How fast is the same loader on each?",
        170,
        left=182,
        right=60,
        top=12,
        bottom=44,
        table={"bars": {"row": "", "words": "files/s"}},
    )


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "io_limits": limits_chart,
    "io_reader": reader_chart,
    "io_cache": cache_chart,
    "io_policies": policies_chart,
    "io_efficiency": efficiency_chart,
    "io_capacity": capacity_chart,
    "io_volume": volume_chart,
    "io_measured": measured_chart,
}
