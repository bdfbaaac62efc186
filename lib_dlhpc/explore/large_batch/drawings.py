"""The drawings of the lesson on large batches, in Altair."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import HALO, PERCENT, WHOLE, axis_of, finished, tooltip_of
from lib_dlhpc.explore.large_batch.charts import LINES, RUNS
from lib_dlhpc.results.palette import SERIES

BLUE, ORANGE, GRAY = SERIES[0], SERIES[1], SERIES[6]


def error_chart() -> dict[str, Any]:
    """Error against batch on ImageNet, as published."""
    x, y = _batch(), alt.Y("y:Q", title="top-1 error on ImageNet")
    y = y.scale(domain=[0.2, 0.36], nice=False).axis(axis_of(labelExpr=PERCENT, tickCount=5))
    names = ("linear scaling", "LARS", "another rule")
    low = alt.Y("low:Q").scale(domain=[0.2, 0.36], nice=False)
    drawn = _measured(x, y, low, _styles(names), joined="datum.line == 'linear scaling'")
    said = alt.Chart(alt.NamedData("points")).encode(x=x, y=y, text="words:N")
    beside = said.transform_filter("datum.line == 'LARS'").mark_text(
        align="right", dx=-9, dy=1, fontSize=11, **HALO
    )
    below = said.transform_filter("datum.line == 'another rule'").mark_text(
        dy=17, fontSize=11, **HALO
    )
    return finished(
        alt.layer(*drawn, beside, below),
        "How far did others get? ResNet-50, published (square: linear scaling, triangle: LARS, disc: other rules)",
        190,
        left=64,
        right=30,
        top=14,
        bottom=44,
        table={"points": {"line": "rule", "x": "batch", "y": "error", "words": "who"}},
    )


def accuracy_chart() -> dict[str, Any]:
    """Accuracy against batch for each rule, mean and deviation of the seeds."""
    x, y = _batch(), _right("y", "test accuracy")
    styles = _styles(("linear scaling", "SGD, rate retuned", "LARS", "LAMB"))
    rule = alt.Chart(alt.NamedData("now")).mark_rule(strokeWidth=2, opacity=0.5).encode(x=x)
    ends = alt.Chart(alt.NamedData("ends")).mark_text(align="left", dx=10)
    ends = ends.encode(x=alt.X("x:Q"), y=_right("place"), text="words:N", color=_color(styles))
    return finished(
        alt.layer(rule, *_measured(x, y, _right("low"), styles), ends),
        "How far does each rule carry? (symbol: mean, bar: one standard deviation of the seeds)",
        230,
        left=64,
        right=134,
        top=14,
        bottom=44,
        table={"points": {"line": "rule", "x": "batch", "words": "right, mean and deviation"}},
    )


def tuning_chart() -> dict[str, Any]:
    """Accuracy on the validation split against the rate."""
    x = alt.X("x:Q", title="rate").scale(type="log", nice=False, padding=16)
    rates = [d * 10.0**k for k in (-3, -2, -1, 0, 1) for d in (1, 2, 5)]
    x = x.axis(axis_of(labelExpr="format(datum.value, '~g')", grid=False, values=rates))
    y = _right("y", "right, validation")
    names = ("SGD, rate retuned", "SGD, 12 epochs", "LARS", "LARS, 12 epochs", "LAMB")
    styles = _styles(names)
    points = alt.Chart(alt.NamedData("points")).encode(x=x, y=y, color=_color(styles))
    lines = points.mark_line(strokeWidth=2).encode(strokeDash=_dash(styles))
    symbols = points.mark_point(filled=True, size=60, opacity=1).encode(shape=_shape(styles))
    symbols = symbols.encode(tooltip=tooltip_of("line"))
    low = points.mark_tick(thickness=2, size=9, opacity=0.7).encode(y=_right("low"))
    best = alt.Chart(alt.NamedData("chosen")).encode(x=x, y=y)
    ring = best.mark_point(size=190, filled=False, strokeWidth=2, color="currentColor", opacity=1)
    said = best.mark_text(dy=-15, fontWeight="bold", **HALO).encode(text="words:N")
    return finished(
        alt.layer(lines, low, symbols, ring, said),
        "Which rate was best? (long dashes: warm-up of 12 epochs; tick: the worst seed)",
        160,
        left=64,
        right=24,
        top=22,
        bottom=44,
        table={"points": {"line": "rule", "x": "rate", "y": "wrong, mean", "low": "worst seed"}},
    )


def schedule_chart() -> dict[str, Any]:
    """The learning rate over the epochs."""
    x = alt.X("x:Q", title="epoch").scale(nice=False).axis(axis_of(grid=False))
    y = alt.Y("y:Q", title="rate").scale(domainMin=0).axis(axis_of(tickCount=4))
    line = alt.Chart(alt.NamedData("line")).mark_area(
        line={"color": BLUE, "strokeWidth": 2}, color=BLUE, fillOpacity=0.12
    )
    return finished(
        line.encode(x=x, y=y),
        "Which learning rate do these controls set?",
        90,
        left=64,
        right=24,
        top=12,
        bottom=44,
        table={"line": {"x": "epoch", "y": "rate"}},
    )


def runs_chart() -> dict[str, Any]:
    """Accuracy against epochs of live runs."""
    x = alt.X("x:Q", title="epoch").scale(nice=False).axis(axis_of(grid=False))
    y = _accuracy("test accuracy")
    styles = {str(i + 1): style for i, style in enumerate(RUNS)}
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(x=x, y=y)
    lines = alt.Chart(alt.NamedData("lines")).encode(x=x, y=y, color=_color(styles))
    drawn = lines.mark_line(strokeWidth=2, clip=True).encode(strokeDash=_dash(styles))
    symbols = lines.mark_point(filled=True, size=28, opacity=0.9).encode(shape=_shape(styles))
    ends = alt.Chart(alt.NamedData("ends")).mark_text(align="left", dx=8)
    ends = ends.encode(x=alt.X("x:Q"), y=alt.Y("place:Q"), text="words:N", color=_color(styles))
    level = alt.Chart(alt.NamedData("target")).encode(y=alt.Y("y:Q"))
    rule = level.mark_rule(strokeDash=[5, 4], strokeWidth=1.5)
    said = level.mark_text(align="left", baseline="top", dx=6, dy=4, **HALO)
    said = said.encode(x=alt.value(0), text="words:N")
    return finished(
        alt.layer(room, rule, drawn, symbols, ends, said),
        "What do your runs learn?",
        210,
        left=64,
        right=190,
        top=14,
        bottom=44,
        table={"lines": {"line": "run", "x": "epoch", "y": "test accuracy"}},
    )


def arrival_chart() -> dict[str, Any]:
    """Steps to the target against the batch, log-log."""
    x = _batch()
    y = alt.Y("y:Q", title="steps").scale(type="log", nice=False, padding=12)
    y = y.axis(axis_of(labelExpr=WHOLE, values=[20, 50, 100, 200, 500, 1000]))
    fit = alt.Chart(alt.NamedData("fit")).mark_line(strokeWidth=2, color=BLUE).encode(x=x, y=y)
    ideal = alt.Chart(alt.NamedData("ideal")).mark_line(strokeWidth=2, strokeDash=[2, 3])
    ideal = ideal.encode(x=x, y=y, color=alt.value(GRAY))
    points = alt.Chart(alt.NamedData("points"))
    bars = points.mark_rule(strokeWidth=3, opacity=0.4, color=ORANGE)
    bars = bars.encode(x=x, y=alt.Y("low:Q"), y2="high:Q")
    means = points.mark_point(filled=True, size=60, opacity=1, color=ORANGE, shape="square")
    means = means.encode(x=x, y=y, tooltip=tooltip_of("words"))
    floor = alt.Chart(alt.NamedData("floor")).encode(y=alt.Y("y:Q"))
    level = floor.mark_rule(strokeDash=[5, 4], strokeWidth=1.5)
    said = floor.mark_text(align="left", baseline="top", dx=6, dy=4, **HALO)
    said = said.encode(x=alt.value(0), text="words:N")
    return finished(
        alt.layer(level, said, *_upright(x), ideal, bars, fit, means),
        "How many steps to the target? (square: measured, line: fit, dots: steps fall as the batch grows)",
        190,
        left=64,
        right=24,
        top=22,
        bottom=44,
        table={
            "points": {"x": "batch", "y": "steps", "low": "less one deviation", "high": "plus one"}
        },
    )


def time_chart() -> dict[str, Any]:
    """Time to the target against GPUs."""
    x = _batch("GPUs")
    y = alt.Y("y:Q", title="time to the target").scale(type="log", nice=False, padding=14)
    hours = "datum.value < 3600 ? datum.value / 60 + ' min' : datum.value / 3600 + ' h'"
    times = [60 * m for m in (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 6000)]
    y = y.axis(axis_of(labelExpr=hours, values=times, labelOverlap=True))
    line = alt.Chart(alt.NamedData("line")).mark_line(strokeWidth=2, color=BLUE).encode(x=x, y=y)
    ideal = alt.Chart(alt.NamedData("ideal")).mark_line(strokeWidth=2, strokeDash=[2, 3])
    ideal = ideal.encode(x=x, y=y, color=alt.value(GRAY))
    now = alt.Chart(alt.NamedData("now")).encode(x=x, y=y)
    disc = now.mark_point(
        shape="circle", filled=True, fill=BLUE, size=110, opacity=1, stroke="white", strokeWidth=1.5
    )
    words = now.mark_text(
        fontWeight="bold", align=alt.expr("datum.side"), dx=alt.expr("datum.shift"), dy=-12, **HALO
    )
    return finished(
        alt.layer(*_upright(x), ideal, line, disc, words.encode(text="words:N")),
        "How long to the target? (dots: if a larger batch always needed fewer steps)",
        200,
        left=74,
        right=24,
        top=22,
        bottom=44,
        table={"line": {"x": "GPUs", "y": "time (s)"}},
    )


Styles = Mapping[str, tuple[str, list[int], str]]


def _styles(names: Sequence[str]) -> Styles:
    return {name: LINES[name] for name in names}


def _color(styles: Styles) -> alt.Color:
    scale = alt.Scale(domain=list(styles), range=[s[0] for s in styles.values()])
    return alt.Color("line:N", legend=None, scale=scale)


def _dash(styles: Styles) -> alt.StrokeDash:
    scale = alt.Scale(domain=list(styles), range=[s[1] for s in styles.values()])
    return alt.StrokeDash("line:N", legend=None, scale=scale)


def _shape(styles: Styles) -> alt.Shape:
    scale = alt.Scale(domain=list(styles), range=[s[2] for s in styles.values()])
    return alt.Shape("line:N", legend=None, scale=scale)


def _batch(title: str = "global batch") -> alt.X:
    x = alt.X("x:Q", title=title).scale(type="log", base=2, nice=False, padding=14)
    return x.axis(axis_of(labelExpr=WHOLE, tickCount=10, grid=False, labelOverlap=True))


def _accuracy(title: str) -> alt.Y:
    y = alt.Y("y:Q", title=title).scale(domain=[0, 1.02], nice=False)
    return y.axis(axis_of(labelExpr=PERCENT, tickCount=5))


def _right(field: str, title: str = "") -> alt.Y:
    """An axis of what is right, logarithmic in what is wrong, which is what the field holds."""
    y = alt.Y(f"{field}:Q").scale(type="log", reverse=True, nice=False, domain=[0.035, 0.97])
    share = "format(1 - datum.value, '.0%')"
    axis = axis_of(labelExpr=share, values=[0.04, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.9])
    return y.title(title).axis(axis) if title else y


def _measured(
    x: alt.X, y: alt.Y, low: alt.Y, styles: Styles, joined: str = "true"
) -> list[alt.Chart]:
    """Means with bars of one deviation, joined to lines."""
    points = alt.Chart(alt.NamedData("points")).encode(x=x, color=_color(styles))
    bars = points.mark_rule(strokeWidth=3, opacity=0.4, clip=True).encode(y=low, y2="high:Q")
    lines = points.transform_filter(joined).mark_line(strokeWidth=2)
    lines = lines.encode(y=y, strokeDash=_dash(styles))
    means = points.mark_point(filled=True, size=64, opacity=1)
    means = means.encode(y=y, shape=_shape(styles), tooltip=tooltip_of("line", "words"))
    return [bars, lines, means]


def _upright(x: alt.X) -> list[alt.Chart]:
    """The critical batch as an upright line."""
    critical = alt.Chart(alt.NamedData("critical")).encode(x=x)
    words = critical.mark_text(baseline="bottom", dy=-3).encode(y=alt.value(0), text="words:N")
    return [critical.mark_rule(strokeDash=[5, 4], strokeWidth=1.5), words]


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "published_error": error_chart,
    "batch_accuracy": accuracy_chart,
    "tuning": tuning_chart,
    "rate_schedule": schedule_chart,
    "live_runs": runs_chart,
    "arrival": arrival_chart,
    "time_to_accuracy": time_chart,
}
