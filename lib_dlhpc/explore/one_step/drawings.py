"""The drawings of the lesson on one step, in Altair."""

from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import BESIDE, HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.one_step.charts import LAUNCHES, OPERATORS, PASSES
from lib_dlhpc.results.palette import SERIES

BLUE, ORANGE, GREEN, GRAY = (SERIES[k] for k in (0, 4, 2, 6))
DECADES = [10.0**k for k in range(-12, 18)]
POWERS = [2**k for k in range(3, 13)]
SECONDS = [d * 10.0**k for k in range(-9, 6) for d in (1, 2, 5)]
INTEGERS = "format(datum.value, ',d')"
LINES = {"a step": (BLUE, [1, 0]), "in proportion": (GRAY, [4, 3])}
KINDS = {
    "matmuls": (BLUE, "circle"),
    "messages": (BLUE, "circle"),
    "sums": (BLUE, "circle"),
    "copies": (ORANGE, "triangle-down"),
}
TABLES = {"now": {"words": "at the slider"}, "step": {"words": ""}}
MEASURED: dict[str, Any] = {"height": 190, "left": 108, **TABLES}


@drawing(
    height=280,
    left=108,
    top=20,
    path={"batch": "batch", "x": "FLOP per byte", "y": "FLOP/s"},
    now={"words": "now"},
)
def one_step_roofline() -> Layers:
    """The roof of the device, and a layer at batches 1 to 4,096."""
    label = "format(datum.value, ',~r')"
    intensity = "arithmetic intensity (FLOP per byte)"
    x = kit.x_axis("x:Q", intensity, label, log=10, values=DECADES, grid=False)
    y = kit.y_axis("y:Q", "rate", SI.format("FLOP/s"), log=10, values=DECADES)
    reached = data("reached", x=x, y=y)
    large = reached.mark_text(align="right", baseline="top", dy=5, fontSize=11, **HALO)
    peak = data("names", x=x, y=y, text="words:N")
    path = data("path", x=x, y=y, order="batch:Q")
    dots = path.mark_point(filled=True, size=30, color=BLUE, opacity=0.8)
    now = data("now", x=x, y=y)
    return (
        kit.room().encode(x=x, y=y),
        data("roof", x=x, y=y).mark_line(strokeWidth=3, color="currentColor"),
        reached.mark_rule(strokeDash=[3, 3], strokeWidth=1.5).encode(x2="end:Q"),
        now.mark_rule(strokeDash=[2, 3], color=kit.RED, strokeWidth=1.5).encode(y2="roof:Q"),
        path.mark_line(strokeWidth=1.5, color=BLUE, opacity=0.6),
        dots.encode(tooltip=kit.tooltip_of("details")),
        peak.mark_text(align="right", baseline="bottom", dy=-5, fontWeight="bold", **HALO),
        large.encode(x="end:Q", text="words:N"),
        kit.symbols(now, 150, shape="diamond", color=kit.RED),
        _corner(now, low=True),
    )


@drawing(
    height=270,
    left=122,
    right=130,
    sums={"row": "", "words": "share, and what bounds it"},
    parts={"part": "pass", "size": "time", "share": "share of the layer"},
)
def one_step_layers() -> Layers:
    """Where does the time of a step go, and what bounds it?"""
    return kit.stacked_bars("time of one step", "s", PASSES, 120, tickCount=4)


@drawing(height=200, lines={"line": "", "x": "batch", "y": "time (s)"}, now={"words": "now"})
def one_step_batch() -> Layers:
    """How does a step grow with its batch?"""
    x = kit.x_axis("x:Q", "batch (samples)", INTEGERS, log=2, grid=False)
    ticks: dict[str, Any] = {"values": SECONDS, "labelOverlap": True}
    y = kit.y_axis("y:Q", "time of one step", SI.format("s"), log=10, **ticks)
    color, dash = kit.inks_and_dashes("line:N", LINES, True)
    lines = data("lines", x=x, y=y, color=color, strokeDash=dash)
    said = data("wall", x=x).mark_text(**BESIDE, dy=-6, baseline="bottom", **HALO)
    now = data("now", x=x, y=y)
    return (
        kit.room().encode(y=y),
        *kit.wall(hatch=0.14, x=x, x2="end:Q"),
        said.encode(y=alt.value(alt.expr("height")), text="words:N"),
        lines.mark_line(strokeWidth=2.5, clip=True),
        kit.symbols(now, 120, shape="diamond", color=kit.RED),
        _corner(now, low=False),
    )


def measured(x: alt.X, y: alt.Y, low: bool) -> Layers:
    """Return raw points, the fit and its band, and where the slider stands. low: the words stand low at the right."""
    fit, now, step = (data(name, x=x) for name in ("fit", "now", "step"))
    kinds = {name: ink for name, (ink, _) in KINDS.items()}
    shape = alt.Shape("kind:N", legend=None)
    shape = shape.scale(domain=list(KINDS), range=[symbol for _, symbol in KINDS.values()])
    points = data("points", x=x, y=y, color=kit.colors("kind:N", kinds), shape=shape)
    points = points.mark_point(size=44, opacity=0.7, strokeWidth=1.5)
    other = step.mark_text(**BESIDE, dy=-24, baseline="bottom", **HALO)
    return (
        kit.room().encode(y=y),
        now.mark_rule(strokeWidth=2, opacity=0.4),
        fit.mark_area(opacity=0.2, color=GREEN).encode(y="low:Q", y2="high:Q"),
        fit.mark_line(strokeWidth=2.5, color=GREEN).encode(y=y),
        step.mark_rule(strokeDash=[6, 3], strokeWidth=2, color=kit.RED),
        points.encode(tooltip=kit.tooltip_of("details")),
        other.encode(y=alt.value(alt.expr("height")), text="words:N"),
        kit.symbols(now, 110, shape="diamond", color=kit.RED).encode(y=y),
        _corner(now, low),
    )


@drawing(**MEASURED)
def one_step_products() -> Layers:
    """Matmuls of square matrices. Points: each repeat; line and band: the fit."""
    look: dict[str, Any] = {"values": POWERS, "grid": False, "scale": {"padding": 6}}
    x = kit.x_axis("x:Q", "edge of the matrices", INTEGERS, log=2, **look)
    return measured(x, _amounts("rate", "FLOP/s"), low=True)


@drawing(**MEASURED)
def one_step_messages() -> Layers:
    """A message between two ranks, one way. Line and band: the fit."""
    # Rates rise and stay, times stay and rise.
    return measured(_sizes("size of the message"), _amounts("time", "s"), low=False)


@drawing(**MEASURED)
def one_step_sums() -> Layers:
    """Arrays added up, and copied. Circles: added up; triangles: copied."""
    return measured(_sizes("size of an array"), _amounts("bytes moved per second", "B/s"), low=True)


@kit.parts_of("", "class", "time", "share of the step", height=110, left=104, right=90)
def one_step_kernels() -> Layers:
    """Which kernels take the time of a step?"""
    return kit.stacked_bars("time of one step", "s", OPERATORS, 100, [LAUNCHES], tickCount=4)


@kit.parts_of("", "class", "bytes", "share of the step", height=110, left=104, right=90)
def one_step_traffic() -> Layers:
    """Which kernels move the bytes of a step?"""
    inks = {name: ink for name, ink in OPERATORS.items() if name != LAUNCHES}
    return kit.stacked_bars("bytes to and from memory", "B", inks, 100, tickCount=4)


@drawing(height=110, left=180, right=90, top=8, bars={"label": "", "words": "time"})
def one_step_passes() -> Layers:
    """How long do the passes take? Light: predicted."""
    x = kit.x_axis("seconds:Q", "all passes", SI.format("s"), tickCount=4, scale={"domainMin": 0})
    bars = data("bars", x=x, y=kit.rows_axis("label:N", kit.ORDER, 176))
    return (
        bars.transform_filter("datum.what == 'measured'").mark_bar(color=BLUE),
        bars.transform_filter("datum.what == 'predicted'").mark_bar(color=BLUE, opacity=0.35),
        kit.words_beside(bars),
    )


def _corner(now: alt.Chart, low: bool) -> alt.Chart:
    """Return the words of `now` where no line comes: low at the right, or high at the left."""
    look: dict[str, Any] = {"lineBreak": "\n", "fontWeight": "bold", **HALO}
    if low:
        words = now.mark_text(align="right", baseline="line-bottom", dx=-8, dy=-20, **look)
    else:
        words = now.mark_text(align="left", baseline="line-top", dx=8, dy=4, **look)
    x, y = ("width", "height") if low else ("0", "0")
    return words.encode(x=alt.value(alt.expr(x)), y=alt.value(alt.expr(y)), text="words:N")


def _sizes(title: str) -> alt.X:
    look: dict[str, Any] = {"values": DECADES, "grid": False, "scale": {"padding": 6}}
    return kit.x_axis("x:Q", title, SI.format("B"), log=10, **look)


def _amounts(title: str, unit: str) -> alt.Y:
    return kit.y_axis("y:Q", title, SI.format(unit), log=10, values=DECADES)
