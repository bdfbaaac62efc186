"""The drawings of the lesson on split networks: matrices in shards, lines, memory of ranks, stages and cuts."""

from collections.abc import Mapping
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.blocks.lines import IDEAL
from lib_dlhpc.results import palette

Looks = Mapping[str, tuple[str, list[int], str]]  # line -> color, dash, symbol
BLUE, ORANGE, GREEN, PALE = (palette.SERIES[i] for i in (0, 1, 2, 5))
# No causes of time, so the series' colors; dash and symbol distinguish the lines without them.
FIRST, SECOND, THIRD, FOURTH = (
    (BLUE, [1, 0], "circle"),
    (GREEN, [6, 3], "square"),
    (ORANGE, [2, 2], "triangle-up"),
    (PALE, [8, 2, 2, 2], "diamond"),
)
PER_MACHINE = {"this machine": FIRST, "one node for all": SECOND, "ideal": IDEAL}
PER_SPLIT = {"column then row": FIRST, "columns twice": SECOND, "rows twice": THIRD}
PER_SCHEDULE = {
    "GPipe and 1F1B": FIRST,
    "interleaved 2 chunks": SECOND,
    "interleaved 3 chunks": THIRD,
    "zero bubble": FOURTH,
}
# Light and dark differ as well.
MEMORY = {"weights and their state": palette.BACKWARD, "activations": palette.FORWARD}
STAGE = {"forward": palette.FORWARD, "backward": palette.BACKWARD, "message on": palette.NEIGHBORS}
# Columns of the tables below the charts, with their headings.
MESSAGES = {"before": "between", "after": "and", "said": "message", "size": "bytes"}
TIMES = {"line": "GPUs", "x": "how many", "y": "time (s)"}
SIZES = {"line": "split", "x": "GPUs", "y": "bytes"}
BUBBLES = {"line": "schedule", "x": "microbatches", "y": "bubble over work"}
HELD = {"rank": "rank", "term": "", "size": "bytes"}
KEPT = {"rank": "rank", "words": "microbatches stored"}
STAGES = {"stage": "stage", "layers": "layers", "term": "", "seconds": "time (s)"}
PLACES = {"x": "layers before", "words": "cut", "y": "bytes"}
DECADES = [d * 10.0**k for k in range(-7, 12) for d in (1, 2, 5)]
HIGH = 96  # px of a matrix
WIDTH = "(scale('x', datum.right) - scale('x', datum.left))"  # px of a shard
FITS = (
    f"{WIDTH} > {kit.WORD:g} * length(datum.words) + 2 && (datum.bottom - datum.top) * {HIGH} > 11"
)


@drawing(
    height=HIGH,
    left=12,
    right=12,
    top=36,
    bottom=58,
    messages=MESSAGES,
    parts={"details": "shards"},
)
def product_parts() -> Layers:
    """Which GPU has which shard of XA = Y, YB = Z? Dark: GPU 0; below: messages, → forward, ← backward."""
    x = alt.X("left:Q", axis=None).scale(domain=[0, 5], nice=False)
    y = alt.Y("top:Q", axis=None).scale(domain=[0, 1], nice=False, reverse=True)
    shards = data("parts", x=x, x2="right:Q", y=y, y2="bottom:Q", tooltip=kit.tooltip_of("details"))
    edge: dict[str, Any] = {"stroke": "currentColor", "strokeWidth": 0.6}
    pale = shards.transform_filter("!datum.mine").mark_rect(color=PALE, opacity=0.22, **edge)
    strong = shards.transform_filter("datum.mine").mark_rect(color=BLUE, **edge)
    words = data("parts", x="middle:Q", y="half:Q").transform_calculate(
        middle="(datum.left + datum.right) / 2", half="(datum.top + datum.bottom) / 2"
    )
    words = words.mark_text(fill=alt.expr("datum.ink"), fontSize=11, baseline="middle")
    shown = alt.Text(value=alt.expr(f"{FITS} ? datum.words : ''"))
    names = data("names", x="x:Q")
    named = names.mark_text(fontWeight="bold", baseline="bottom", fontSize=13)
    size = alt.Text(value=alt.expr("width > 460 ? datum.size : ''"))
    sent = data("messages", x="x:Q", text="words:N", tooltip=kit.tooltip_of("said"))
    return (
        pale,
        strong,
        words.encode(text=shown),
        named.encode(y=alt.value(-18), text="words:N"),
        names.mark_text(baseline="bottom", fontSize=11).encode(y=alt.value(-4), text=size),
        sent.mark_text(baseline="middle", fontSize=11).encode(
            y=alt.value(alt.expr(f"{HIGH} + 16 + 16 * datum.line"))
        ),
    )


@drawing(right=130, lines=TIMES)
def product_time() -> Layers:
    """How long do the matmuls take?"""
    return _lines("GPUs that share each matmul", "both matmuls", SI.format("s"), PER_MACHINE)


@drawing(height=160, right=130, lines=SIZES)
def product_bytes() -> Layers:
    """How much does each GPU send?"""
    return _lines("GPUs that share each matmul", "sent by a GPU", SI.format("B"), PER_SPLIT)


@drawing(height=170, left=64, right=150, lines=BUBBLES)
def pipeline_bubble() -> Layers:
    """How large is the bubble? Lines: predicted; diamond: simulated."""
    return _lines("microbatches", "bubble over work", kit.PERCENT, PER_SCHEDULE, 14, "diamond")


def _lines(
    across: str, up: str, labels: str, looks: Looks, padding: int = 12, shape: str = "circle"
) -> Layers:
    """Lines on logarithmic axes, and where the controls stand, with its words."""
    x = kit.by_two(across, 8, padding=10)
    y = kit.y_axis(
        "y:Q", up, labels, log=10, values=DECADES, labelOverlap=True, scale={"padding": padding}
    )
    disc, _ = kit.point(x, y, shape=shape, fill=ORANGE)
    words = data("now", x=x, y=y).mark_text(
        fontWeight="bold", align="center", dy=alt.expr("datum.dy"), **HALO
    )
    lines = kit.line_marks(x, y, looks)
    return kit.marker(x), *lines, disc, words.encode(text="words:N")


@drawing(height=150, top=20, bars=HELD, tops=KEPT)
def pipeline_memory() -> Layers:
    """Does it fit? Above the bars: microbatches stored at once."""
    x = alt.X("rank:O", title="rank of the pipeline", axis=kit.axis_of(labelAngle=0, ticks=False))
    y = kit.y_axis("start:Q", "memory", SI.format("B"), tickCount=4)
    color = kit.colors("term:N", MEMORY, key=True)
    bars = data("bars", x=x, y=y, y2="stop:Q", color=color, tooltip=kit.tooltip_of("details"))
    over = data("over", x=x, y=y, y2="stop:Q")
    tops = data("tops", x=x, y="y:Q", text="words:N").mark_text(baseline="bottom", dy=-3, **HALO)
    return kit.room("y"), bars.mark_bar(), kit.hatched(over, 0.6), *kit.level("capacity"), tops


@drawing(top=22, bars=STAGES)
def stage_times() -> Layers:
    """How long does each stage take?"""
    x = kit.x_axis(
        "start:Q", "time of a microbatch", SI.format("s"), grid=False, scale={"zero": True}
    )
    y = kit.rows_axis("stage:N")
    bars = data("bars", x=x, x2="stop:Q", y=y)
    shown = bars.mark_bar().encode(
        color=kit.colors("term:N", STAGE, key=True), tooltip=kit.tooltip_of("details")
    )
    messages = kit.hatched(bars.transform_filter("datum.term == 'message on'"), 0.6)
    notes = data("notes", x="stop:Q", y=y, text="words:N")
    mean = data("mean", x="x:Q")
    return (
        kit.room("x"),
        shown,
        messages,
        mean.mark_rule(strokeDash=[2, 3], strokeWidth=1.5),
        kit.on_top(mean, -3, **HALO),
        notes.mark_text(align="right", dx=-6, fontWeight="bold", **HALO),
    )


@drawing(height=150, places=PLACES)
def cut_bytes() -> Layers:
    """What would a cut send? Diamonds: where it is cut."""
    x = kit.x_axis("x:Q", "layers before the cut", kit.WHOLE, grid=False)
    y = kit.y_axis("y:Q", "sent a microbatch", SI.format("B"), tickCount=4)
    places, cuts = data("places", x=x), data("cuts", x=x, y=y)
    stems = places.mark_rule(strokeWidth=1, opacity=0.5, color=BLUE)
    heads = kit.symbols(places, 28, color=BLUE)
    said = cuts.mark_text(baseline="bottom", dy=-9, fontWeight="bold", **HALO)
    return (
        data("room", x=x, y=y).mark_point(opacity=0),
        stems.encode(y="floor:Q", y2="y:Q"),
        heads.encode(y=y, tooltip=kit.tooltip_of("words")),
        kit.symbols(cuts, 150, shape="diamond", color=ORANGE),
        said.encode(text="words:N"),
    )
