"""The drawings of the lesson on memory, in Altair."""

from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import BESIDE, HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.memory_wall.charts import HIGH, KINDS, LINES
from lib_dlhpc.results import palette

ALWAYS, PASSING = palette.BACKWARD, palette.FORWARD
SECONDS = [d * 10.0**k for k in range(-4, 6) for d in (1, 2, 5)]
BYTES = [d * 10.0**k for k in range(6, 14) for d in (1, 2, 5)]
RATES = [10.0**k for k in range(7, 14)]


@drawing(height=220, left=150, right=70, top=26, bottom=42, terms={"term": "", "size": "size"})
def memory() -> Layers:
    """What one device must hold."""
    x = kit.x_axis("start:Q", "memory of one device", SI.format("B"), scale={"domainMin": 0})
    y = kit.rows_axis("term:N", kit.ORDER, 160)
    terms, place = data("terms"), alt.X("capacity:Q")
    steps = terms.encode(x=x, x2="stop:Q", y=y)
    over = steps.transform_filter("datum.over > 0").encode(x="over_start:Q")
    *beyond, edge = kit.wall(x=place, x2="end:Q")
    look: dict[str, Any] = {"align": BESIDE["align"], "fontSize": 13, "fontWeight": "bold"}
    return (
        *beyond,
        steps.mark_bar().encode(
            color=kit.colors("term:N", palette.MEMORY), tooltip=kit.tooltip_of("term", "size")
        ),
        over.mark_bar(fill=kit.HATCH_ON_COLOR, tooltip=None),
        edge,
        kit.words_beside(terms, "size:N", x="stop:Q", y=y),
        kit.on_top(data("wall", x=place), -5, **look),
    )


@drawing(
    height=210, top=24, peak={"words": "peak"}, phases={"words": "phase", "time": "begins at (s)"}
)
def memory_course() -> Layers:
    """When is the memory fullest? Dark: always there; light: only for a part of the step."""
    x = kit.x_axis("time:Q", "time in a step", SI.format("s"), grid=False)
    y = kit.y_axis("bytes:Q", "memory", SI.format("B"), tickCount=5, scale={"zero": True})
    held, wall, phases = data("held", x=x), data("wall", y=alt.Y("y:Q")), data("phases", x=x)
    moving = held.mark_area(interpolate="step-after", color=PASSING, line=False)
    fixed = held.mark_area(interpolate="step-after", color=ALWAYS)
    said = wall.mark_text(align="right", baseline="bottom", dx=-6, dy=-4, **HALO)
    peak = data("peak", x=x, y=y)
    *beyond, edge = kit.wall(y=alt.Y("y:Q"), y2="top:Q")
    return (
        kit.room("y"),
        *beyond,
        moving.encode(y=y, y2="fixed:Q"),
        fixed.encode(y=alt.Y("fixed:Q")),
        phases.mark_rule(strokeDash=[2, 3], opacity=0.6),
        kit.on_top(phases, -3, align="left", dx=4),
        edge,
        said.encode(x=alt.value(alt.expr("width")), text="words:N"),
        kit.symbols(peak, 110, shape="diamond", color="currentColor"),
        peak.mark_text(fontWeight="bold", **BESIDE, dy=-9, **HALO).encode(text="words:N"),
    )


@drawing(
    height=int(HIGH),
    top=16,
    ways={"name": "way", "kind": "", "memory": "memory (B)", "seconds": "step (s)"},
)
def memory_ways() -> Layers:
    """What does each way cost? In brackets, hatched: does not fit."""
    marks = {"labelOverlap": True, "log": 10}
    title = "memory of a GPU at the peak"
    x = kit.x_axis("memory:Q", title, SI.format("B"), values=BYTES, grid=False, **marks)
    y = kit.y_axis("seconds:Q", "time of one step", SI.format("s"), values=SECONDS, **marks)
    styles = {name: (ink, [1, 0], symbol) for name, (ink, symbol) in KINDS.items()}
    color, _, shape = kit.looks("kind:N", styles, key=True)
    ways, wall = data("ways", x=x, y=y), data("wall", x=alt.X("x:Q"))
    points = kit.symbols(ways, 110)
    said = wall.mark_text(align="right", baseline="top", dx=-6, dy=4, fontWeight="bold", **HALO)
    words = ways.mark_text(
        align=alt.expr("datum.side"),
        dx=alt.expr("datum.dx"),
        dy=alt.expr("datum.dy"),
        baseline="middle",
        fontSize=11,
        **HALO,
    )
    return (
        kit.room("x", "y"),
        *kit.wall(hatch=0.12, x=alt.X("x:Q"), x2="end:Q"),
        said.encode(y=alt.value(0), text="words:N"),
        points.encode(color=color, shape=shape, tooltip=kit.tooltip_of("details")),
        words.encode(text="label:N"),
    )


@kit.lines_of(
    "way", "bandwidth (B/s)", "step (s)", height=240, right=110, top=24, required={"words": ""}
)
def memory_link() -> Layers:
    """How fast must the host link be?"""
    title = "bandwidth of the host link, each direction"
    x = kit.x_axis("x:Q", title, SI.format("B/s"), log=10, values=RATES, grid=False)
    axis = {"values": SECONDS, "labelOverlap": True, "scale": {"padding": 14}}
    y = kit.y_axis("y:Q", "time of one step", SI.format("s"), log=10, **axis)
    required, links = data("required", x=x), data("links", x=x)
    named = links.mark_text(angle=270, align="left", baseline="bottom", dx=4, fontSize=11)
    return (
        kit.room("y"),
        links.mark_rule(strokeDash=[1, 4], opacity=0.5),
        named.encode(y=alt.value(alt.expr("height")), text="words:N"),
        kit.marker(x),
        required.mark_rule(strokeWidth=2, strokeDash=[6, 3], color=kit.RED),
        kit.on_top(required, **BESIDE),
        *kit.line_marks(x, y, LINES),
        *kit.values_beside(x, y),
    )
