"""The drawings of the lesson on failures, in Altair."""

from collections.abc import Callable
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import (
    HALO,
    HATCH,
    PERCENT,
    WORD,
    axis_of,
    finished,
    tooltip_of,
)
from lib_dlhpc.explore.failures.charts import LINES, LOST, PHASES, WAYS
from lib_dlhpc.results import palette

RED, BLUE = palette.SERIES[1], palette.SERIES[0]
# Seconds as people say them: a clock has no SI prefixes above its seconds.
TIME = (
    "datum.value >= 172800 ? format(datum.value / 86400, '.3~r') + ' days' : "
    "datum.value >= 7200 ? format(datum.value / 3600, '.3~r') + ' h' : "
    "datum.value >= 120 ? format(datum.value / 60, '.3~r') + ' min' : "
    "datum.value == 0 ? '0' : replace(format(datum.value, '.3~s'), /([a-zµ]?)$/, ' $1') + 's'"
)
TIMES = [*(10.0**k for k in range(-7, 2)), 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400]


def _scales(names: list[str]) -> tuple[alt.Color, alt.StrokeDash, alt.Shape]:
    color = alt.Color("line:N", legend=None)
    dash = alt.StrokeDash("line:N", legend=None)
    shape = alt.Shape("line:N", legend=None)
    inks = [LINES[n][0] for n in names]
    return (
        color.scale(domain=names, range=inks),
        dash.scale(domain=names, range=[LINES[n][1] for n in names]),
        shape.scale(domain=names, range=[LINES[n][2] for n in names]),
    )


def loss_chart() -> dict[str, Any]:
    """Shares of the time that are lost against the interval, both axes logarithmic."""
    x = alt.X("x:Q", title="training between two checkpoints").scale(type="log", nice=False)
    x = x.axis(axis_of(labelExpr=TIME, values=TIMES, grid=False))
    y = alt.Y("y:Q", title="share of the time that is lost").scale(type="log", nice=False)
    y = y.axis(axis_of(labelExpr="format(datum.value, '.2~%')", values=[1e-4, 1e-3, 1e-2, 0.1, 1]))
    color, dash, shape = _scales(list(LINES))
    curves = alt.Chart(alt.NamedData("lines")).encode(x=x, y=y, color=color)
    drawn = curves.mark_line(strokeWidth=2.2, clip=True).encode(strokeDash=dash)
    symbols = curves.transform_filter("datum.symbol").mark_point(filled=True, size=60, opacity=1)
    ends = alt.Chart(alt.NamedData("ends")).encode(y=alt.Y("place:Q"), color=color)
    words = ends.transform_filter("datum.late").mark_text(align="left", dx=8)
    words = words.encode(x=x, text="line:N")
    early = ends.transform_filter("!datum.late").mark_text(align="left", dx=8, dy=-6, **HALO)
    early = early.encode(x=x, text="line:N")
    marks = alt.Chart(alt.NamedData("marks")).encode(x=x)
    rules = marks.mark_rule(strokeDash=[3, 3], opacity=0.7)
    named = marks.mark_text(baseline="bottom", dy=alt.expr("datum.dy"), align="left", dx=3)
    named = named.encode(y=alt.value(0), text="words:N")
    now = alt.Chart(alt.NamedData("now")).encode(x=x)
    marker = now.mark_rule(strokeWidth=2, opacity=0.5)
    point = now.mark_point(
        shape="circle", size=150, strokeWidth=2.5, color="currentColor", opacity=1
    )
    beside = now.mark_text(
        fontWeight="bold", align=alt.expr("datum.side"), dx=alt.expr("datum.shift"), dy=-12, **HALO
    )
    simulated = alt.Chart(alt.NamedData("simulated")).encode(x=x)
    bars = simulated.mark_rule(strokeWidth=3, color=BLUE, opacity=0.7)
    bars = bars.encode(y=alt.Y("low:Q"), y2="high:Q")
    means = simulated.mark_point(
        shape="cross", filled=True, size=120, color=BLUE, opacity=1
    ).encode(y=y)
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0)
    room = room.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"))
    chart = alt.layer(
        room,
        rules,
        named,
        marker,
        drawn,
        symbols.encode(shape=shape),
        words,
        early,
        bars,
        means,
        point.encode(y=y),
        beside.encode(y=y, text="words:N"),
    )
    return finished(
        chart,
        "Which interval loses the least? (crosses: simulated)",
        270,
        left=70,
        right=128,
        top=58,
        bottom=44,
        table={
            "lines": {"line": "", "x": "interval (s)", "y": "share of the time"},
            "marks": {"words": "best interval"},
            "simulated": {"x": "simulated at (s)", "y": "mean loss", "low": "10 %", "high": "90 %"},
        },
    )


def phases_chart() -> dict[str, Any]:
    """What runs do from their start on, a row a run; failures are arrows with a bolt."""
    kinds = list(PHASES)
    x = alt.X("start:Q", title="time since the start").scale(nice=False)
    ticks = "sequence(0, 1.0001 * data('room')[1].x, data('room')[1].step)"
    x = x.axis(axis_of(labelExpr=TIME, grid=False, values=alt.expr(ticks)))
    y = _row("top")
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=-84,
        legendY=-52,
        direction="horizontal",
        columns=3,
        symbolType="square",
        columnPadding=14,
        labelLimit=0,
    )
    color = alt.Color("kind:N", legend=legend)
    color = color.scale(domain=kinds, range=[PHASES[k][0] for k in kinds])
    bars = alt.Chart(alt.NamedData("bars")).encode(x=x, x2="stop:Q", y=y, y2="bottom:Q")
    solid = bars.mark_rect(clip=True).encode(color=color, tooltip=tooltip_of("details"))
    hatched = bars.transform_filter("datum.hatched")
    hatched = hatched.mark_rect(fill=HATCH, fillOpacity=0.5, tooltip=None, clip=True)
    strikes = alt.Chart(alt.NamedData("strikes")).encode(x=alt.X("x:Q"), y=_row("top"))
    bolt = strikes.mark_rule(strokeWidth=2, color=RED).encode(y2="bottom:Q")
    sign = strikes.mark_text(text="✕", fontWeight="bold", color=RED, dy=-5, fontSize=13)
    rows = alt.Chart(alt.NamedData("rows")).encode(x=alt.value(-8), y=_row("middle"))
    names = rows.mark_text(align="right", baseline="middle").encode(text="name:N")
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0)
    room = room.encode(x=alt.X("x:Q"), y=_row("y"))
    return finished(
        alt.layer(room, solid, hatched, bolt, sign, names),
        "Where does the time of the run go? (✕: a failure)",
        110,
        left=92,
        right=24,
        top=68,
        bottom=44,
        table={"bars": {"run": "run", "kind": "what", "start": "from (s)", "stop": "to (s)"}},
    )


def _row(field: str) -> alt.Y:
    """Return a height in rows of runs; every layer must say that there is no axis."""
    return alt.Y(f"{field}:Q", axis=None).scale(nice=False, reverse=True)


def costs_chart() -> dict[str, Any]:
    """For each way to save: how long training stalls, and when the state is durable."""
    x = alt.X("blocked:Q", title="time after the checkpoint begins").scale(type="log", nice=False)
    x = x.axis(axis_of(labelExpr=TIME, values=TIMES, labelOverlap=True, grid=False))
    y = alt.Y("way:N", title=None, sort=list(WAYS))
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=110))
    points = alt.Chart(alt.NamedData("points")).encode(y=y)
    behind = points.transform_filter("datum.split")
    line = behind.mark_rule(strokeWidth=2, strokeDash=[4, 3]).encode(x=x, x2="safe:Q")
    still = points.mark_point(shape="square", filled=True, size=110, color=BLUE, opacity=1)
    still = still.encode(x=x, tooltip=tooltip_of("details"))
    safe = behind.mark_point(shape="circle", size=110, strokeWidth=2.5, color=RED, opacity=1)
    safe = safe.encode(x=alt.X("safe:Q"), tooltip=tooltip_of("details"))
    style: dict[str, Any] = {"fontSize": 11, "dy": -11, **HALO}
    said = points.mark_text(**style).encode(x=x, text="still:N")
    after = behind.mark_text(**style).encode(x=alt.X("safe:Q"), text="written:N")
    interval = alt.Chart(alt.NamedData("interval")).encode(x=alt.X("x:Q"))
    rule = interval.mark_rule(strokeWidth=2, opacity=0.6)
    due = interval.mark_text(align="right", baseline="bottom", dx=4, dy=-3)
    due = due.encode(y=alt.value(0), text="words:N")
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(x=alt.X("x:Q"))
    return finished(
        alt.layer(room, rule, due, line, still, safe, said, after),
        "How long does one checkpoint take? (■: training stalls until here, ○: durable from here on)",
        150,
        left=110,
        right=40,
        top=24,
        bottom=44,
        table={"points": {"way": "way to save", "still": "stall", "written": "durable after"}},
    )


def ways_chart() -> dict[str, Any]:
    """What each way to save loses, by cause."""
    x = alt.X("start:Q", title="share of the time that is lost").scale(nice=False, zero=True)
    x = x.axis(axis_of(labelExpr=PERCENT, tickCount=5))
    y = alt.Y("way:N", title=None, sort=list(WAYS))
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=110)).scale(
        paddingInner=0.3
    )
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=-100,
        legendY=-30,
        direction="horizontal",
        columns=3,
        symbolType="square",
        columnPadding=16,
        labelLimit=0,
    )
    color = alt.Color("part:N", legend=legend).scale(domain=list(LOST), range=list(LOST.values()))
    bars = alt.Chart(alt.NamedData("bars")).encode(y=y)
    solid = bars.mark_bar().encode(
        x=x, x2="stop:Q", color=color, tooltip=tooltip_of("way", "part", "share")
    )
    hatched = bars.transform_filter("datum.hatched")
    hatched = hatched.mark_bar(fill=HATCH, fillOpacity=0.25, tooltip=None).encode(x=x, x2="stop:Q")
    room = "(scale('x', datum.stop) - scale('x', datum.start))"
    fits = f"{room} > {WORD} * length(datum.share) + 6 ? datum.share : ''"
    label = bars.mark_text(**HALO).encode(x=alt.X("middle:Q"), text=alt.Text(value=alt.expr(fits)))
    ends = alt.Chart(alt.NamedData("ends")).mark_text(align="left", dx=6).encode(x="x:Q", y=y)
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(x=alt.X("x:Q"))
    return finished(
        alt.layer(room, solid, hatched, label, ends.encode(text="words:N")),
        "What does each way lose?",
        170,
        left=110,
        right=160,
        top=46,
        bottom=44,
        table={
            "bars": {"way": "way to save", "part": "lost to", "share": "share of the time"},
            "ends": {"way": "way to save", "words": "becomes training"},
        },
    )


def written_chart() -> dict[str, Any]:
    """Bytes that each version wrote, and those of the whole state."""
    x = alt.X("version:N", title="version", sort=alt.EncodingSortField("order", "min"))
    x = x.axis(axis_of(labelAngle=0, grid=False, labelOverlap=True))
    y = alt.Y("written:Q", title="written").scale(nice=False, zero=True)
    y = y.axis(
        axis_of(
            labelExpr="replace(format(datum.value, '~s'), /([a-zA-Z]?)$/, ' $1') + 'B'", tickCount=4
        )
    )
    bars = alt.Chart(alt.NamedData("bars")).encode(x=x, y=y)
    wide = alt.expr("min(30, 0.8 * width / max(1, length(data('bars'))))")
    solid = bars.mark_bar(color=BLUE, size=wide).encode(tooltip=tooltip_of("details", "label"))
    said = bars.mark_text(dy=-7, fontSize=11, **HALO).encode(text="label:N")
    whole = alt.Chart(alt.NamedData("whole")).encode(y=alt.Y("y:Q"))
    rule = whole.mark_rule(strokeDash=[6, 3], strokeWidth=2)
    named = whole.mark_text(align="right", baseline="bottom", dx=-4, dy=-15, **HALO)
    named = named.encode(x=alt.value(alt.expr("width")), text="words:N")
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(y=alt.Y("y:Q"))
    return finished(
        alt.layer(room, solid, rule, said, named),
        "How much did each version write?",
        130,
        left=74,
        right=24,
        top=12,
        bottom=44,
        table={"bars": {"version": "version", "written": "written (B)", "details": ""}},
    )


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "failures_loss": loss_chart,
    "failures_phases": phases_chart,
    "failures_costs": costs_chart,
    "failures_ways": ways_chart,
    "failures_written": written_chart,
}
