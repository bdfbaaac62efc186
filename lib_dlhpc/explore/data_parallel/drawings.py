"""The drawings of the lesson on data parallelism, in Altair."""

from typing import Any

import altair as alt

from lib_dlhpc.explore.allreduce.drawings import MEASURED, SECONDS
from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import SI, Layers, data, drawing
from lib_dlhpc.explore.blocks.lines import FIRST, IDEAL, SECOND, THIRD
from lib_dlhpc.results import palette
from lib_dlhpc.results.palette import SERIES

LINES = {
    "during backward": FIRST,
    "after backward": SECOND,
    "weak": FIRST,
    "strong": SECOND,
    "ideal": IDEAL,
    "synchronous": FIRST,
    "asynchronous": SECOND,
    "local": THIRD,
}
DECADES = [10**k for k in range(10)]
DOTS = [2, 3]
PUBLISHED = {"words": "published", "error": "error of the prediction"}
LOSSES = [10.0**k * d for k in (-3, -2, -1, 0, 1) for d in (1, 2, 5)]


@kit.lines_of("exchange", "bucket (B)", "step (s)", right=130)
def bucket_sizes() -> Layers:
    """How large should a bucket be?"""
    x = kit.x_axis("x:Q", "bucket", SI.format("B"), log=10, grid=False, values=DECADES)
    look: dict[str, Any] = {"tickCount": 5, "labelOverlap": True, "scale": {"padding": 22}}
    y = kit.y_axis("y:Q", "time of one step", SI.format("s"), log=10, **look)
    lines = kit.line_marks(x, y, LINES, "during backward", "after backward")
    floor = kit.level("floor", left=True, below=True, strokeDash=DOTS)
    return *floor, *lines, *kit.point(x, y)


@drawing(height=130, left=64, top=22, bars={"stop": "GPUs up to", "time": "time over mean"})
def rank_times() -> Layers:
    """Who computes, and who is idle? Plain: computes; hatched: idle."""
    x = kit.x_axis("start:Q", "GPUs, from the fastest to the slowest", kit.WHOLE, grid=False)
    y = alt.Y("time:Q", title="compute time over mean").scale(nice=False, domainMin=0, padding=10)
    bars = data("bars", x=x, x2="stop:Q")
    work = bars.mark_rect(color=palette.FORWARD, stroke=palette.FORWARD, strokeWidth=0.7)
    waiting = bars.encode(y=y, y2="slowest:Q")
    pale = waiting.mark_rect(color=palette.IDLE, opacity=0.3)
    idle = kit.hatched(waiting, 0.45, "rect", fill=kit.HATCH)
    level = kit.level("slowest", left=True, strokeDash=DOTS)
    return work.encode(y=alt.Y("floor:Q"), y2="time:Q"), pale, idle, *level


@drawing(
    left=64,
    points={"x": "GPUs", "y": "step, drawn", "low": "p10", "high": "p90"},
    line={"x": "GPUs", "y": "step, formula"},
)
def slowest() -> Layers:
    """How slow is the slowest of p? Line: Blom's formula; square: mean of the draws; bar: p10 to p90."""
    x = kit.by_two("GPUs", padding=14)
    scale = {"zero": False, "padding": 14}
    y = kit.y_axis("y:Q", "step over mean compute time", tickCount=5, scale=scale)
    line = data("line", x=x, y=y).mark_line(strokeWidth=2, color=SERIES[0])
    points = data("points", x=x)
    spread = points.mark_rule(strokeWidth=3, opacity=0.4, color=SERIES[1])
    spread = spread.encode(y=alt.Y("low:Q"), y2="high:Q")
    means = kit.symbols(points, 60, color=SERIES[1], shape="square").encode(
        y=y, tooltip=kit.tooltip_of("words")
    )
    return (
        kit.room("y"),
        *kit.level("slow", left=True, strokeDash=DOTS, strokeWidth=1),
        spread,
        line,
        means,
        *kit.point(x, y),
    )


@kit.lines_of("training", "time (s)", "loss", height=220, left=64, right=130)
def race() -> Layers:
    """Who learns fastest?"""
    x = kit.x_axis("x:Q", "time", SI.format("s"), grid=False, scale={"zero": True})
    look: dict[str, Any] = {"values": LOSSES, "scale": {"padding": 10}}
    y = kit.y_axis("y:Q", "loss, of that at the start", "format(datum.value, '~g')", log=10, **look)
    names = ("synchronous", "asynchronous", "local")
    lines = kit.line_marks(x, y, LINES, *names, interpolate="step-after")
    return *kit.level("target", left=True, strokeDash=[5, 4]), *lines


@drawing(height=100, left=64, bars={"staleness": "updates old", "words": "share"})
def staleness() -> Layers:
    """How stale is an asynchronous gradient?"""
    look: dict[str, Any] = {"labelAngle": 0, "labelOverlap": True, "ticks": False}
    x = kit.x_axis("staleness:O", "updates by others since the weights were read", **look)
    y = kit.y_axis("share:Q", "updates", kit.PERCENT, tickCount=4, scale={"nice": True})
    bars = data("bars", x=x, y=y, tooltip=kit.tooltip_of("staleness", "words"))
    mean = data("mean", x=alt.value(alt.expr("width - 6")), y=alt.value(8), text="words:N")
    return bars.mark_bar(color=SERIES[1]), mean.mark_text(align="right", fontWeight="bold")


@kit.lines_of("scaling", "GPUs", "of one node", height=200, left=64, right=70, published=PUBLISHED)
def gpu_share() -> Layers:
    """How efficient is each GPU? Diamonds: published."""
    x, scale = kit.by_two("GPUs"), {"domain": [0, 1.15]}
    y = kit.y_axis(
        "y:Q", "rate of a GPU over that in one node", kit.PERCENT, tickCount=5, scale=scale
    )
    stars = kit.published(x, y, "words", "error")
    lines = kit.line_marks(x, y, LINES, "weak", "strong")
    return kit.marker(x), *lines, stars, *kit.values_beside(x, y)


@kit.lines_of("scaling", "GPUs", "images per second", left=64, right=70)
def images_a_second() -> Layers:
    """How fast is the whole run?"""
    x, look = kit.by_two("GPUs"), {"values": DECADES, "scale": {"padding": 10}}
    y = kit.y_axis("y:Q", "images per second", "format(datum.value, '~s')", log=10, **look)
    return kit.marker(x), *kit.line_marks(x, y, LINES, "weak", "strong", "ideal")


@drawing(height=220, points={"size": "bucket (B)", **MEASURED})
def step_exchange() -> Layers:
    """How long does it take? Disc: median measured; bar: p10 to p90; dash: predicted."""
    sizes: dict[str, Any] = {"grid": False, "values": DECADES, "scale": {"padding": 28}}
    x = kit.x_axis("size:Q", "bucket", SI.format("B"), log=10, **sizes)
    look: dict[str, Any] = {"tickCount": 5, "scale": {"padding": 12}}
    y = kit.y_axis("low:Q", "allreduces of a step", SECONDS, log=10, **look)
    points = data("points", x=x)
    spread = points.mark_rule(strokeWidth=3, opacity=0.5, color=SERIES[0])
    median = kit.symbols(points, 110, color=SERIES[0]).encode(
        y=alt.Y("median:Q"), tooltip=kit.tooltip_of("words")
    )
    price = points.mark_tick(orient="horizontal", thickness=3, size=22, color=SERIES[1])
    return spread.encode(y=y, y2="high:Q"), price.encode(y=alt.Y("price:Q")), median
