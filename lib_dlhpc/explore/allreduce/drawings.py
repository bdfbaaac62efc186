"""The drawings of the allreduce lesson, in Altair."""

from typing import Any

import altair as alt

from lib_dlhpc.explore.allreduce.charts import CAUSES, KINDS, LINES, name_of
from lib_dlhpc.explore.allreduce.measured import ALGORITHMS, LIBRARY, SIZES
from lib_dlhpc.explore.allreduce.sizes import FLAT, LARGEST
from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import BESIDE, HALO, SI, Layers, data, drawing
from lib_dlhpc.results.palette import SERIES

# On a logarithmic axis only 1, 2 and 5 are labeled, so that labels do not meet.
FIRST_DIGIT = "round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))"
SECONDS = f"indexof([1, 2, 5], {FIRST_DIGIT}) >= 0 ? {SI.format('s')} : ''"
MEASURED = {"low": "p10 (s)", "median": "median (s)", "high": "p90 (s)", "price": "predicted (s)"}
BUFFER = "message, the buffer of each rank"
FITS = "(scale('x', datum.stop) - scale('x', datum.start)) > 6.6 * length(datum.words) + 4"


@drawing(
    height=300,
    right=150,
    top=46,
    regions={"words": "fastest", "start": "from (B)", "stop": "to (B)"},
    lines={"line": "algorithm", "size": "message (B)", "seconds": "time (s)"},
)
def message_sizes() -> Layers:
    """Which allreduce is the fastest, for which message?"""
    look: dict[str, Any] = {"tickCount": 9, "grid": False, "scale": {"domain": [1, LARGEST]}}
    x = kit.x_axis("size:Q", BUFFER, SI.format("B"), log=10, **look)
    y = kit.y_axis("seconds:Q", "time of one allreduce", SECONDS, log=10)
    color, dash, shape = kit.looks("line:N", {name: LINES[name] for name in FLAT})
    curves = data("lines", x=x, y=y, color=color)
    lines = curves.mark_line(strokeWidth=2, clip=True).encode(strokeDash=dash)
    symbols = kit.symbols(curves.transform_filter("datum.symbol"), 70)
    symbols = symbols.encode(shape=shape, tooltip=kit.tooltip_of("line", "size", "seconds"))
    ends = data("ends", y=alt.Y("place:Q").scale(type="log", nice=False))
    signs = kit.symbols(ends, 70).encode(
        x=alt.value(alt.expr("width + 14")), shape=shape, color=color
    )
    words = ends.mark_text(align="left").encode(x=alt.value(alt.expr("width + 24")), text="words:N")
    return *_winners(x, color), lines, symbols, *_now(x), signs, words


def _winners(x: alt.X, color: alt.Color) -> Layers:
    """Return a strip above the plot: the fastest algorithms, and where they change."""
    regions, turns = data("regions"), data("turns", x=x)
    strip = regions.mark_rect(opacity=0.32)
    strip = strip.encode(x="start:Q", x2="stop:Q", color=color, y=alt.value(-22), y2=alt.value(-4))
    won = regions.mark_text(fontWeight="bold", baseline="middle")
    text = alt.Text(value=alt.expr(f"{FITS} ? datum.words : ''"))
    borders = turns.mark_rule(strokeDash=[2, 3], opacity=0.7)
    won = won.encode(x="middle:Q", y=alt.value(-13), text=text)
    return strip, won, borders, kit.on_top(turns, -26)


def _now(x: alt.X) -> Layers:
    """Return a vertical line at the size that is chosen."""
    marker = data("marker", x=x)
    said = marker.mark_text(**BESIDE, fontWeight="bold", baseline="bottom", dy=-5, **HALO)
    return marker.mark_rule(strokeWidth=2.5), said.encode(y=alt.value(18), text="words:N")


@drawing(
    height=210,
    left=130,
    right=30,
    sums={"row": "", "words": "time and buffers that leave a node"},
    parts={"row": "", "part": "cause", "size": "time"},
)
def nics() -> Layers:
    """What do shared NICs cost?"""
    return kit.room("x"), *kit.stacked_bars("time of one allreduce", "s", CAUSES, 160)


@drawing(
    height=280,
    left=56,
    labels={"reduce": "reduce: combined with what is there", "copy": "copy: takes its place"},
    arrows={"words": "message"},
)
def messages() -> Layers:
    """Which rank sends to which, round by round? The thicker a line, the more is sent."""
    counts: dict[str, Any] = {"format": "d", "tickMinStep": 1}
    x = kit.x_axis("from:Q", "rounds", kit.WHOLE, tickMinStep=1, grid=False, tickCount=12)
    scale = {"reverse": True, "padding": 12}
    y = kit.y_axis(
        "source:Q", "rank", **counts, tickCount=16, domain=False, ticks=False, scale=scale
    )
    color, dash, shape = kit.looks("kind:N", KINDS, key=True)
    bright = alt.condition("datum.now", alt.value(1.0), alt.value(0.42))
    stage = data("stage", x="start:Q", x2="stop:Q").mark_rect(opacity=0.13, color=SERIES[4])
    ranks = data("points", x="round:Q", y="rank:Q")
    ranks = ranks.mark_point(size=14, filled=True, color=SERIES[6])
    width = alt.StrokeWidth("share:Q", legend=None).scale(domain=[0, 1], range=[1, 4])
    arrows = data("arrows", color=color, opacity=bright)
    lines = arrows.mark_rule(clip=True).encode(x=x, y=y, x2="to:Q", y2="target:Q", strokeDash=dash)
    heads = arrows.encode(x="to:Q", y="target:Q", shape=shape)
    return (
        *(stage, ranks, lines.encode(strokeWidth=width, tooltip=kit.tooltip_of("words"))),
        *_discs_and_squares(heads),
    )


def _discs_and_squares(marks: alt.Chart) -> Layers:
    """Return marks of messages: a reduce is a disc, a copy an open square."""
    reduce = marks.transform_filter("datum.kind == 'reduce'").mark_point(filled=True, size=60)
    copy = marks.transform_filter("datum.kind == 'copy'")
    return reduce, copy.mark_point(filled=False, size=60, strokeWidth=2)


@drawing(
    height=260,
    labels={name: name_of(name) for name in ALGORITHMS},
    points={"algorithm": "", "size": "message (B)", **MEASURED},
)
def measured() -> Layers:
    """How long does it take? Symbol: median measured; bar: p10 to p90; dash: predicted."""
    sizes: dict[str, Any] = {"grid": False, "values": list(SIZES), "scale": {"padding": 28}}
    x = kit.x_axis("place:Q", BUFFER, SI.format("B"), log=10, **sizes)
    look: dict[str, Any] = {"tickCount": 5, "scale": {"padding": 10}}
    y = kit.y_axis("low:Q", "time of one allreduce", SECONDS, log=10, **look)
    styles = {name: LINES[name] for name in (*ALGORITHMS, LIBRARY)}
    color, _, shape = kit.looks("algorithm:N", styles, key=True)
    points = data("points", x=x)
    spread = points.mark_rule(strokeWidth=3, opacity=0.5).encode(y=y, y2="high:Q", color=color)
    price = points.transform_filter("isValid(datum.price)")
    price = price.mark_tick(orient="horizontal", thickness=3, size=17, color="currentColor")
    median = kit.symbols(points, 110).encode(y="median:Q", color=color, shape=shape)
    shown = kit.tooltip_of("algorithm", "time", "expected")
    return spread, price.encode(y="price:Q"), median.encode(tooltip=shown)
