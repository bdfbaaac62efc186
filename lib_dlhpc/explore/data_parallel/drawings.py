"""The drawings of the lesson on data parallelism, in Altair."""

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from lib_dlhpc.explore.allreduce.drawings import SECONDS
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
from lib_dlhpc.explore.blocks.line_drawings import by_two, line_marks, marker, point, values_beside
from lib_dlhpc.explore.data_parallel.charts import LINES
from lib_dlhpc.results import palette
from lib_dlhpc.results.palette import SERIES

DECADES = [10**k for k in range(10)]


def buckets_chart() -> dict[str, Any]:
    """Time of a step against the size of a bucket, with the allreduce during backward and after it."""
    x = alt.X("x:Q", title="bucket").scale(type="log", nice=False)
    x = x.axis(axis_of(labelExpr=SI.format("B"), grid=False, values=DECADES))
    y = alt.Y("y:Q", title="time of one step").scale(type="log", nice=False, padding=22)
    y = y.axis(axis_of(labelExpr=SI.format("s"), tickCount=5, labelOverlap=True))
    lines = line_marks(x, y, ("during backward", "after backward"), LINES)
    chart = alt.layer(*_floor("floor", y, "below"), *lines, *point(x, y))
    return finished(
        chart,
        "How large should a bucket be?",
        190,
        left=74,
        right=130,
        top=14,
        bottom=44,
        table={"lines": {"line": "exchange", "x": "bucket (B)", "y": "step (s)"}},
    )


def ranks_chart() -> dict[str, Any]:
    """Compute time of each rank in one step, sorted; idle time is hatched."""
    x = alt.X("start:Q", title="GPUs, from the fastest to the slowest").scale(nice=False)
    x = x.axis(axis_of(labelExpr=WHOLE, grid=False))
    y = alt.Y("time:Q", title="compute time over mean").scale(nice=False, domainMin=0, padding=10)
    bars = alt.Chart(alt.NamedData("bars")).encode(x=x, x2="stop:Q")
    work = bars.mark_rect(color=palette.FORWARD, stroke=palette.FORWARD, strokeWidth=0.7).encode(
        y=alt.Y("floor:Q"), y2="time:Q"
    )
    waiting = bars.encode(y=y, y2="slowest:Q")
    pale = waiting.mark_rect(color=palette.IDLE, opacity=0.3)
    hatched = waiting.mark_rect(fill=HATCH, fillOpacity=0.45)
    chart = alt.layer(work, pale, hatched, *_floor("slowest", y, "above"))
    return finished(
        chart,
        "Who computes (plain), and who is idle (hatched)?",
        130,
        left=64,
        right=24,
        top=22,
        bottom=44,
        table={"bars": {"stop": "GPUs up to", "time": "time over mean"}},
    )


def slowest_chart() -> dict[str, Any]:
    """Step over mean compute time against ranks: the formula, and what was drawn."""
    x = alt.X("x:Q", title="GPUs").scale(type="log", base=2, nice=False, padding=14)
    x = x.axis(axis_of(labelExpr=WHOLE, tickCount=12, grid=False))
    y = alt.Y("y:Q", title="step over mean compute time")
    y = y.scale(nice=False, zero=False, padding=14).axis(axis_of(tickCount=5))
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(y=y)
    line = (
        alt.Chart(alt.NamedData("line")).mark_line(strokeWidth=2, color=SERIES[0]).encode(x=x, y=y)
    )
    points = alt.Chart(alt.NamedData("points"))
    spread = points.mark_rule(strokeWidth=3, opacity=0.4, color=SERIES[1])
    spread = spread.encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    means = points.mark_point(filled=True, size=60, opacity=1, color=SERIES[1], shape="square")
    means = means.encode(x=x, y=y, tooltip=tooltip_of("words"))
    slow = alt.Chart(alt.NamedData("slow")).encode(y=y)
    rule = slow.mark_rule(strokeDash=[2, 3])
    said = slow.mark_text(align="left", baseline="bottom", dx=6, dy=-3, **HALO)
    said = said.encode(x=alt.value(0), text="words:N")
    chart = alt.layer(room, rule, said, spread, line, means, *point(x, y))
    return finished(
        chart,
        "How slow is the slowest of p? (line: Blom's formula; square: mean of the draws, bar: p10 to p90)",
        190,
        left=64,
        right=24,
        top=14,
        bottom=44,
        table={
            "points": {"x": "GPUs", "y": "step, drawn", "low": "p10", "high": "p90"},
            "line": {"x": "GPUs", "y": "step, formula"},
        },
    )


def race_chart() -> dict[str, Any]:
    """Loss against time, for each way to train."""
    x = alt.X("x:Q", title="time").scale(nice=False, zero=True)
    x = x.axis(axis_of(labelExpr=SI.format("s"), grid=False))
    y = alt.Y("y:Q", title="loss, of that at the start").scale(type="log", nice=False, padding=10)
    y = y.axis(
        axis_of(
            labelExpr="format(datum.value, '~g')",
            values=[10.0**k * d for k in (-3, -2, -1, 0, 1) for d in (1, 2, 5)],
        )
    )
    lines = line_marks(
        x, y, ("synchronous", "asynchronous", "local"), LINES, interpolate="step-after"
    )
    chart = alt.layer(*_floor("target", y, "above", [5, 4]), *lines)
    return finished(
        chart,
        "Who learns fastest?",
        220,
        left=64,
        right=130,
        top=14,
        bottom=44,
        table={"lines": {"line": "training", "x": "time (s)", "y": "loss"}},
    )


def staleness_chart() -> dict[str, Any]:
    """How stale the asynchronous gradients are."""
    x = alt.X("staleness:O", title="updates by others since the weights were read")
    x = x.axis(axis_of(labelAngle=0, labelOverlap=True, ticks=False))
    y = alt.Y("share:Q", title="updates", axis=axis_of(labelExpr=PERCENT, tickCount=4))
    bars = (
        alt.Chart(alt.NamedData("bars"))
        .mark_bar(color=SERIES[1])
        .encode(x=x, y=y, tooltip=tooltip_of("staleness", "words"))
    )
    mean = alt.Chart(alt.NamedData("mean")).mark_text(align="right", fontWeight="bold")
    said = mean.encode(x=alt.value(alt.expr("width - 6")), y=alt.value(8), text="words:N")
    return finished(
        alt.layer(bars, said),
        "How stale is an asynchronous gradient?",
        100,
        left=64,
        right=24,
        top=14,
        bottom=44,
        table={"bars": {"staleness": "updates old", "words": "share"}},
    )


def left_chart() -> dict[str, Any]:
    """Efficiency of each GPU against GPUs, weak and strong, with the published points."""
    x = by_two("GPUs")
    y = alt.Y("y:Q", title="rate of a GPU over that in one node")
    y = y.scale(domain=[0, 1.15], nice=False).axis(axis_of(labelExpr=PERCENT, tickCount=5))
    points = alt.Chart(alt.NamedData("published")).encode(x=x, y=y)
    stars = points.mark_point(
        shape="diamond", size=150, filled=False, strokeWidth=2.5, opacity=1, color="currentColor"
    ).encode(tooltip=tooltip_of("words", "error"))
    chart = alt.layer(
        marker(x), *line_marks(x, y, ("weak", "strong"), LINES), stars, *values_beside(x, y)
    )
    return finished(
        chart,
        "How efficient is each GPU? (diamonds: published)",
        200,
        left=64,
        right=70,
        top=14,
        bottom=44,
        table={
            "lines": {"line": "scaling", "x": "GPUs", "y": "of one node"},
            "published": {"words": "published", "error": "error of the prediction"},
        },
    )


def rate_chart() -> dict[str, Any]:
    """Images a second against GPUs, weak, strong and ideal."""
    x, y = by_two("GPUs"), alt.Y("y:Q", title="images a second")
    y = y.scale(type="log", nice=False, padding=10)
    y = y.axis(axis_of(labelExpr="format(datum.value, '~s')", values=DECADES))
    chart = alt.layer(marker(x), *line_marks(x, y, ("weak", "strong", "ideal"), LINES))
    return finished(
        chart,
        "How fast is the whole run?",
        190,
        left=64,
        right=70,
        top=14,
        bottom=44,
        table={"lines": {"line": "scaling", "x": "GPUs", "y": "images a second"}},
    )


def step_exchange_chart() -> dict[str, Any]:
    """Measured exchange of one step against the size of its buckets, with its prediction."""
    x = alt.X("size:Q", title="bucket").scale(type="log", nice=False, padding=28)
    x = x.axis(axis_of(labelExpr=SI.format("B"), grid=False, values=DECADES))
    y = alt.Y("low:Q", title="allreduces of a step").scale(type="log", nice=False, padding=12)
    y = y.axis(axis_of(labelExpr=SECONDS, tickCount=5))
    points = alt.Chart(alt.NamedData("points"))
    spread = points.mark_rule(strokeWidth=3, opacity=0.5, color=SERIES[0]).encode(
        x=x, y=y, y2="high:Q"
    )
    median = points.mark_point(filled=True, size=110, opacity=1, color=SERIES[0])
    median = median.encode(x=x, y=alt.Y("median:Q"), tooltip=tooltip_of("words"))
    price = points.mark_tick(orient="horizontal", thickness=3, size=22, color=SERIES[1])
    price = price.encode(x=x, y=alt.Y("price:Q"))
    return finished(
        alt.layer(spread, price, median),
        "How long does it take? (disc: median measured, bar: p10 to p90, dash: predicted)",
        220,
        left=74,
        right=24,
        top=14,
        bottom=44,
        table={
            "points": {
                "size": "bucket (B)",
                "low": "p10 (s)",
                "median": "median (s)",
                "high": "p90 (s)",
                "price": "predicted (s)",
            }
        },
    )


def _floor(data: str, y: alt.Y, side: str, dash: Sequence[int] = (2, 3)) -> list[alt.Chart]:
    """A horizontal line across, with its words at the left end."""
    level = alt.Chart(alt.NamedData(data)).encode(y=alt.Y("y:Q"))
    rule = level.mark_rule(strokeDash=list(dash), strokeWidth=1.5)
    up = side == "above"
    words = level.mark_text(
        align="left", baseline="bottom" if up else "top", dx=6, dy=-3 if up else 4, **HALO
    )
    return [rule, words.encode(x=alt.value(0), text="words:N")]


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "bucket_sizes": buckets_chart,
    "rank_times": ranks_chart,
    "slowest": slowest_chart,
    "race": race_chart,
    "staleness": staleness_chart,
    "gpu_share": left_chart,
    "images_a_second": rate_chart,
    "step_exchange": step_exchange_chart,
}
