"""The drawings of the lesson on large batches, in Altair."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import HALO, Layers, data, drawing
from lib_dlhpc.explore.large_batch.charts import LINES, RUNS
from lib_dlhpc.results.palette import SERIES

BLUE, ORANGE, GRAY = SERIES[0], SERIES[1], SERIES[6]
DASHES = [5, 4]
# What is right, logarithmic in what is wrong, which is what the fields hold.
RIGHT: dict[str, Any] = {"type": "log", "reverse": True, "nice": False, "domain": [0.035, 0.97]}
HOURS = "datum.value < 3600 ? datum.value / 60 + ' min' : datum.value / 3600 + ' h'"


@drawing(left=64, right=30, points={"line": "rule", "x": "batch", "y": "error", "words": "who"})
def published_error() -> Layers:
    """How far did others get? ResNet-50, published. Square: linear scaling; triangle: LARS; disc: other rules."""
    x, domain = _batch(), [0.2, 0.36]
    y = kit.y_axis(
        "y:Q", "top-1 error on ImageNet", kit.PERCENT, tickCount=5, scale={"domain": domain}
    )
    low = alt.Y("low:Q").scale(domain=domain, nice=False)
    names = ("linear scaling", "LARS", "another rule")
    who = data("points", x=x, y=y, text="words:N")
    places: dict[str, dict[str, Any]] = {  # none of them lies on a mark
        "You 2018": {"align": "right", "dx": -9, "dy": 1},
        "Ying 2018": {"align": "left", "dx": -14, "dy": 17},
        "Jia 2018": {"align": "left", "dx": -6, "dy": -11},
        "Smith 2018": {"align": "right", "dx": 6, "dy": 17},
    }
    return (
        *_measured(x, y, low, names, joined="datum.line == 'linear scaling'"),
        *(
            who.transform_filter(alt.datum.words == name).mark_text(fontSize=11, **place, **HALO)
            for name, place in places.items()
        ),
    )


@drawing(
    height=230,
    left=64,
    right=134,
    points={"line": "rule", "x": "batch", "words": "right, mean and deviation"},
)
def batch_accuracy() -> Layers:
    """How far does each rule carry? Symbol: mean; bar: one standard deviation of the seeds."""
    x, names = _batch(), ("linear scaling", "SGD, rate retuned", "LARS", "LAMB")
    color, *_ = kit.looks("line:N", LINES, names=names)
    ends = data("ends", x=alt.X("x:Q"), y=_level("place"), text="words:N", color=color)
    lines = _measured(x, _right("test accuracy"), _level("low"), names)
    return kit.marker(x), *lines, ends.mark_text(align="left", dx=10)


@drawing(
    height=160,
    left=64,
    top=22,
    points={"line": "rule", "x": "rate", "y": "wrong, mean", "low": "worst seed"},
)
def tuning() -> Layers:
    """Which rate was best? Long dashes: warm-up of 12 epochs; tick: the worst seed."""
    rates = [d * 10.0**k for k in (-3, -2, -1, 0, 1) for d in (1, 2, 5)]
    shown, wide = "format(datum.value, '~g')", {"padding": 16}
    x = kit.x_axis("x:Q", "rate", shown, log=10, grid=False, values=rates, scale=wide)
    y = _right("right, validation")
    names = ("SGD, rate retuned", "SGD, 12 epochs", "LARS", "LARS, 12 epochs", "LAMB")
    color, dash, shape = kit.looks("line:N", LINES, names=names)
    points, best = data("points", x=x, y=y, color=color), data("chosen", x=x, y=y)
    ring = best.mark_point(size=190, filled=False, strokeWidth=2, color="currentColor", opacity=1)
    above, beside = best.transform_filter("!datum.beside"), best.transform_filter("datum.beside")
    bold: dict[str, Any] = {"fontWeight": "bold", **HALO}
    return (
        points.mark_line(strokeWidth=2).encode(strokeDash=dash),
        points.mark_tick(thickness=2, size=9, opacity=0.7).encode(y=_level("low")),
        kit.symbols(points, 60).encode(shape=shape, tooltip=kit.tooltip_of("line")),
        ring,
        above.mark_text(dy=-15, **bold).encode(text="words:N"),
        beside.mark_text(align="left", dx=12, dy=-4, **bold).encode(text="words:N"),
    )


@drawing(height=90, left=64, top=12, line={"x": "epoch", "y": "rate"})
def rate_schedule() -> Layers:
    """Which learning rate do these controls set?"""
    y = alt.Y("y:Q", title="rate").scale(domainMin=0).axis(kit.axis_of(tickCount=4))
    line = data("line", x=kit.x_axis("x:Q", "epoch", grid=False), y=y)
    edge = {"color": BLUE, "strokeWidth": 2}
    return [line.mark_area(line=edge, color=BLUE, fillOpacity=0.12)]


@kit.lines_of("run", "epoch", "test accuracy", height=210, left=64, right=190)
def live_runs() -> Layers:
    """What do your runs learn?"""
    x = kit.x_axis("x:Q", "epoch", grid=False)
    y = kit.y_axis("y:Q", "test accuracy", kit.PERCENT, tickCount=5, scale={"domain": [0, 1.02]})
    styles = {str(i + 1): style for i, style in enumerate(RUNS)}
    color, dash, shape = kit.looks("line:N", styles)
    lines = data("lines", x=x, y=y, color=color)
    ends = data("ends", x=alt.X("x:Q"), y=alt.Y("place:Q"), text="words:N", color=color)
    rule, words = kit.level("target", left=True, below=True, strokeDash=DASHES)
    return (
        kit.room("x", "y").encode(x=x, y=y),
        rule,
        lines.mark_line(strokeWidth=2, clip=True).encode(strokeDash=dash),
        lines.mark_point(filled=True, size=28, opacity=0.9).encode(shape=shape),
        ends.mark_text(align="left", dx=8),
        words,
    )


@drawing(
    left=64,
    top=22,
    points={"x": "batch", "y": "steps", "low": "less one deviation", "high": "plus one"},
)
def arrival() -> Layers:
    """How many steps to the target? Square: measured; line: fit; dots: steps fall as the batch grows."""
    x, ticks = _batch(), [20, 50, 100, 200, 500, 1000]
    y = kit.y_axis("y:Q", "steps", kit.WHOLE, log=10, values=ticks, scale={"padding": 12})
    points = data("points", x=x)
    bars = points.mark_rule(strokeWidth=3, opacity=0.4, color=ORANGE)
    means = kit.symbols(points, 60, color=ORANGE, shape="square")
    return (
        *kit.level("floor", left=True, below=True, strokeDash=DASHES),
        *_critical(x),
        _ideal(x, y),
        bars.encode(y=alt.Y("low:Q"), y2="high:Q"),
        data("fit", x=x, y=y).mark_line(strokeWidth=2, color=BLUE),
        means.encode(y=y, tooltip=kit.tooltip_of("words")),
    )


@drawing(height=200, top=22, line={"x": "GPUs", "y": "time (s)"})
def time_to_accuracy() -> Layers:
    """How long to the target? Dots: if a larger batch always needed fewer steps."""
    times = [60 * m for m in (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 6000)]
    x, ticks, scale = _batch("GPUs"), {"values": times, "labelOverlap": True}, {"padding": 14}
    y = kit.y_axis("y:Q", "time to the target", HOURS, log=10, **ticks, scale=scale)
    line = data("line", x=x, y=y).mark_line(strokeWidth=2, color=BLUE)
    return *_critical(x), _ideal(x, y), line, *kit.point(x, y)


def _batch(title: str = "global batch") -> alt.X:
    ticks = {"tickCount": 10, "grid": False, "labelOverlap": True}
    return kit.x_axis("x:Q", title, kit.WHOLE, log=2, **ticks, scale={"padding": 14})


def _right(title: str) -> alt.Y:
    ticks, share = [0.04, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.9], "format(1 - datum.value, '.0%')"
    return kit.y_axis("y:Q", title, share, log=10, values=ticks, scale=RIGHT)


def _level(field: str) -> alt.Y:
    return alt.Y(f"{field}:Q").scale(**RIGHT)


def _measured(x: alt.X, y: alt.Y, low: alt.Y, names: Sequence[str], joined: str = "true") -> Layers:
    """Means with bars of one deviation, joined to lines."""
    color, dash, shape = kit.looks("line:N", LINES, names=names)
    points = data("points", x=x, color=color)
    return [
        points.mark_rule(strokeWidth=3, opacity=0.4, clip=True).encode(y=low, y2="high:Q"),
        points.transform_filter(joined).mark_line(strokeWidth=2).encode(y=y, strokeDash=dash),
        kit.symbols(points, 64).encode(y=y, shape=shape, tooltip=kit.tooltip_of("line", "words")),
    ]


def _ideal(x: alt.X, y: alt.Y) -> alt.Chart:
    line = data("ideal", x=x, y=y, color=alt.value(GRAY))
    return line.mark_line(strokeWidth=2, strokeDash=[2, 3])


def _critical(x: alt.X) -> Layers:
    """The critical batch as an upright line."""
    line = data("critical", x=x)
    return [line.mark_rule(strokeDash=DASHES, strokeWidth=1.5), kit.on_top(line, -3)]
