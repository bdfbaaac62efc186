"""The drawings of the lesson on split networks, in Altair."""

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
from lib_dlhpc.explore.blocks.line_drawings import by_two, line_marks, marker
from lib_dlhpc.explore.model_parallel.charts import LINES, MEMORY, STAGE
from lib_dlhpc.results import palette

BLUE, PALE, ORANGE = palette.SERIES[0], palette.SERIES[5], palette.SERIES[1]
DECADES = [d * 10.0**k for k in range(-7, 12) for d in (1, 2, 5)]
HIGH = 96  # px of a matrix
PER_MACHINE = ("this machine", "one node for all", "ideal")
PER_SPLIT = ("column then row", "columns twice", "rows twice")
PER_SCHEDULE = ("GPipe and 1F1B", "interleaved 2 chunks", "interleaved 3 chunks")


def parts_chart() -> dict[str, Any]:
    """Two products as five matrices, each cut into what the GPUs have; below, the messages in between."""
    left = alt.X("left:Q", axis=None).scale(domain=[0, 5], nice=False)
    top = alt.Y("top:Q", axis=None).scale(domain=[0, 1], nice=False, reverse=True)
    own = alt.Chart(alt.NamedData("parts")).encode(x=left, x2="right:Q", y=top, y2="bottom:Q")
    details = tooltip_of("details")
    others = own.transform_filter("!datum.mine")
    pale = others.mark_rect(color=PALE, opacity=0.22, stroke="currentColor", strokeWidth=0.6)
    mine = own.transform_filter("datum.mine")
    strong = mine.mark_rect(color=BLUE, stroke="currentColor", strokeWidth=0.6).encode(
        tooltip=details
    )
    room = "(scale('x', datum.right) - scale('x', datum.left))"
    fits = f"{room} > 7 * length(datum.words) + 2 && (datum.bottom - datum.top) * {HIGH} > 11"
    words = alt.Chart(alt.NamedData("parts")).transform_calculate(
        middle="(datum.left + datum.right) / 2", half="(datum.top + datum.bottom) / 2"
    )
    words = words.mark_text(fill=alt.expr("datum.ink"), fontSize=11, baseline="middle")
    words = words.encode(
        x=alt.X("middle:Q"),
        y=alt.Y("half:Q"),
        text=alt.Text(value=alt.expr(f"{fits} ? datum.words : ''")),
    )
    names = alt.Chart(alt.NamedData("names")).encode(x=alt.X("x:Q"))
    named = names.mark_text(fontWeight="bold", baseline="bottom", fontSize=13)
    named = named.encode(y=alt.value(-18), text="words:N")
    size = names.mark_text(baseline="bottom", fontSize=10)
    size = size.encode(
        y=alt.value(-4), text=alt.Text(value=alt.expr("width > 460 ? datum.size : ''"))
    )
    sent = alt.Chart(alt.NamedData("messages")).encode(x=alt.X("x:Q"))
    below = alt.value(alt.expr(f"{HIGH} + 16 + 16 * datum.line"))
    said = sent.mark_text(baseline="middle", fontSize=11).encode(
        y=below, text="words:N", tooltip=tooltip_of("said")
    )
    chart = alt.layer(pale.encode(tooltip=details), strong, words, named, size, said)
    return finished(
        chart,
        "Which GPU has which shard of XA = Y, YB = Z? (dark: GPU 0; below: messages, → forward, ← backward)",
        HIGH,
        left=12,
        top=36,
        right=12,
        bottom=58,
        table={
            "messages": {"before": "between", "after": "and", "said": "message", "size": "bytes"},
            "parts": {"details": "shards"},
        },
    )


def time_chart() -> dict[str, Any]:
    """Time of both products against GPUs."""
    x = by_two("GPUs that share each product", 8, padding=10)
    y = alt.Y("y:Q", title="both products").scale(type="log", nice=False, padding=12)
    y = y.axis(axis_of(labelExpr=SI.format("s"), values=DECADES, labelOverlap=True))
    chart = alt.layer(marker(x), *line_marks(x, y, PER_MACHINE, LINES), *_values(x, y))
    return finished(
        chart,
        "How long do the products take?",
        190,
        left=74,
        right=130,
        top=14,
        bottom=44,
        table={"lines": {"line": "GPUs", "x": "how many", "y": "time (s)"}},
    )


def bytes_chart() -> dict[str, Any]:
    """What a GPU sends against GPUs, for each way to split."""
    x = by_two("GPUs that share each product", 8, padding=10)
    y = alt.Y("y:Q", title="sent by a GPU").scale(type="log", nice=False, padding=12)
    y = y.axis(axis_of(labelExpr=SI.format("B"), values=DECADES, labelOverlap=True))
    chart = alt.layer(marker(x), *line_marks(x, y, PER_SPLIT, LINES), *_values(x, y))
    return finished(
        chart,
        "How much does each GPU send?",
        160,
        left=74,
        right=130,
        top=14,
        bottom=44,
        table={"lines": {"line": "split", "x": "GPUs", "y": "bytes"}},
    )


def kept_chart() -> dict[str, Any]:
    """Memory of each rank of a pipeline, with the microbatches that it stores."""
    x = alt.X("rank:O", title="rank of the pipeline", axis=axis_of(labelAngle=0, ticks=False))
    y = alt.Y("start:Q", title="memory").scale(nice=False)
    y = y.axis(axis_of(labelExpr=SI.format("B"), tickCount=4))
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(y=alt.Y("y:Q"))
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=0,
        legendY=-34,
        direction="horizontal",
        labelLimit=0,
        symbolType="square",
    )
    color = alt.Color("term:N", legend=legend).scale(
        domain=list(MEMORY), range=list(MEMORY.values())
    )
    bars = (
        alt.Chart(alt.NamedData("bars"))
        .mark_bar()
        .encode(x=x, y=y, y2="stop:Q", color=color, tooltip=tooltip_of("details"))
    )
    over = alt.Chart(alt.NamedData("over")).mark_bar(fill=HATCH, fillOpacity=0.6, tooltip=None)
    over = over.encode(x=x, y=y, y2="stop:Q")
    tops = alt.Chart(alt.NamedData("tops")).mark_text(baseline="bottom", dy=-3, **HALO)
    tops = tops.encode(x=x, y=alt.Y("y:Q"), text="words:N")
    level = alt.Chart(alt.NamedData("capacity")).encode(y=alt.Y("y:Q"))
    rule = level.mark_rule(strokeDash=[6, 3], strokeWidth=1.5)
    said = level.mark_text(align="right", baseline="bottom", dx=-4, dy=-3, **HALO)
    said = said.encode(x=alt.value(alt.expr("width")), text="words:N")
    return finished(
        alt.layer(room, bars, over, rule, said, tops),
        "Does it fit? (above the bars: microbatches stored at once)",
        150,
        left=74,
        right=24,
        top=46,
        bottom=44,
        table={
            "bars": {"rank": "rank", "term": "", "size": "bytes"},
            "tops": {"rank": "rank", "words": "microbatches stored"},
        },
    )


def bubble_chart() -> dict[str, Any]:
    """The bubble over the work against microbatches, for each schedule."""
    x = by_two("microbatches", 8, padding=10)
    y = alt.Y("y:Q", title="bubble over work").scale(type="log", nice=False, padding=14)
    y = y.axis(axis_of(labelExpr=PERCENT, values=DECADES, labelOverlap=True))
    chart = alt.layer(marker(x), *line_marks(x, y, PER_SCHEDULE, LINES), *_values(x, y, "diamond"))
    return finished(
        chart,
        "How large is the bubble? (lines: predicted, diamond: simulated)",
        170,
        left=64,
        right=150,
        top=14,
        bottom=44,
        table={"lines": {"line": "schedule", "x": "microbatches", "y": "bubble over work"}},
    )


def stages_chart() -> dict[str, Any]:
    """Time of each stage for a microbatch, and of its message."""
    x = alt.X("start:Q", title="time of a microbatch").scale(nice=False, zero=True)
    x = x.axis(axis_of(labelExpr=SI.format("s"), grid=False))
    y = alt.Y("stage:N", title=None, sort=None, axis=axis_of(grid=False, ticks=False, domain=False))
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=0,
        legendY=-34,
        direction="horizontal",
        labelLimit=0,
        symbolType="square",
    )
    color = alt.Color("term:N", legend=legend).scale(domain=list(STAGE), range=list(STAGE.values()))
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(x=alt.X("x:Q"))
    bars = alt.Chart(alt.NamedData("bars")).encode(x=x, x2="stop:Q", y=y)
    drawn = bars.mark_bar().encode(color=color, tooltip=tooltip_of("details"))
    hatched = bars.transform_filter("datum.term == 'message on'")
    hatched = hatched.mark_bar(fill=HATCH, fillOpacity=0.6, tooltip=None)
    notes = alt.Chart(alt.NamedData("notes")).mark_text(
        align="right", dx=-6, fontWeight="bold", **HALO
    )
    notes = notes.encode(x=alt.X("stop:Q"), y=y, text="words:N")
    mean = alt.Chart(alt.NamedData("mean")).encode(x=alt.X("x:Q"))
    rule = mean.mark_rule(strokeDash=[2, 3], strokeWidth=1.5)
    said = mean.mark_text(baseline="bottom", dy=-3, **HALO).encode(y=alt.value(0), text="words:N")
    return finished(
        alt.layer(room, drawn, hatched, rule, said, notes),
        "How long does each stage take?",
        190,
        left=74,
        right=24,
        top=58,
        bottom=44,
        table={"bars": {"stage": "stage", "layers": "layers", "term": "", "seconds": "time (s)"}},
    )


def cuts_chart() -> dict[str, Any]:
    """What a cut at each possible place would send."""
    x = alt.X("x:Q", title="layers before the cut").scale(nice=False)
    x = x.axis(axis_of(labelExpr=WHOLE, grid=False))
    y = alt.Y("y:Q", title="sent a microbatch").scale(nice=False)
    y = y.axis(axis_of(labelExpr=SI.format("B"), tickCount=4))
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(x=x, y=y)
    places = alt.Chart(alt.NamedData("places"))
    stems = places.mark_rule(strokeWidth=1, opacity=0.5, color=BLUE).encode(
        x=x, y=alt.Y("floor:Q"), y2="y:Q"
    )
    heads = places.mark_point(filled=True, size=28, opacity=1, color=BLUE)
    heads = heads.encode(x=x, y=y, tooltip=tooltip_of("words"))
    cuts = alt.Chart(alt.NamedData("cuts")).encode(x=x, y=y)
    marks = cuts.mark_point(shape="diamond", size=150, filled=True, color=ORANGE, opacity=1)
    said = cuts.mark_text(baseline="bottom", dy=-9, fontWeight="bold", **HALO).encode(
        text="words:N"
    )
    return finished(
        alt.layer(room, stems, heads, marks, said),
        "What would a cut send? (diamonds: where it is cut)",
        150,
        left=74,
        right=24,
        top=14,
        bottom=44,
        table={"places": {"x": "layers before", "words": "cut", "y": "bytes"}},
    )


def _values(x: alt.X, y: alt.Y, shape: str = "circle") -> list[alt.Chart]:
    """Where the controls stand, with its words."""
    now = alt.Chart(alt.NamedData("now")).encode(x=x, y=y)
    mark = now.mark_point(
        shape=shape, filled=True, fill=ORANGE, size=110, opacity=1, stroke="white", strokeWidth=1.5
    )
    words = now.mark_text(fontWeight="bold", align="center", dy=alt.expr("datum.dy"), **HALO)
    return [mark, words.encode(text="words:N")]


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "product_parts": parts_chart,
    "product_time": time_chart,
    "product_bytes": bytes_chart,
    "pipeline_memory": kept_chart,
    "pipeline_bubble": bubble_chart,
    "stage_times": stages_chart,
    "cut_bytes": cuts_chart,
}
