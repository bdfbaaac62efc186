"""The drawings of the allreduce lesson, in Altair."""

from collections.abc import Callable
from typing import Any

import altair as alt

from lib_dlhpc.explore.allreduce.charts import CAUSES, LINES
from lib_dlhpc.explore.allreduce.measured import SIZES
from lib_dlhpc.explore.blocks.drawings import HALO, SI, axis_of, finished, tooltip_of
from lib_dlhpc.results.palette import SERIES

# On a logarithmic axis only 1, 2 and 5 are labeled, so that labels do not meet.
FIRST_DIGIT = "round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))"
SECONDS = f"indexof([1, 2, 5], {FIRST_DIGIT}) >= 0 ? {SI.format('s')} : ''"


def sizes_chart() -> dict[str, Any]:
    """Time against message size, log-log; above it a strip that says who wins where."""
    x = alt.X("size:Q", title="message, the buffer of each rank").scale(
        type="log", domain=[1, 1e9], nice=False
    )
    x = x.axis(axis_of(labelExpr=SI.format("B"), tickCount=9, grid=False))
    y = alt.Y("seconds:Q", title="time of one allreduce").scale(type="log", nice=False)
    y = y.axis(axis_of(labelExpr=SECONDS, tickCount=6))
    color, dash, shape = _styles(*list(LINES)[:5])
    curves = alt.Chart(alt.NamedData("lines")).encode(x=x, y=y, color=color)
    lines = curves.mark_line(strokeWidth=2, clip=True).encode(strokeDash=dash)
    symbols = curves.transform_filter("datum.symbol").mark_point(filled=True, size=70, opacity=1)
    symbols = symbols.encode(shape=shape, tooltip=tooltip_of("line", "size", "seconds"))
    place = alt.Y("place:Q").scale(type="log", nice=False)
    ends = alt.Chart(alt.NamedData("ends")).encode(y=place)
    signs = ends.mark_point(filled=True, size=70, opacity=1)
    signs = signs.encode(x=alt.value(alt.expr("width + 14")), shape=shape, color=color)
    words = ends.mark_text(align="left").encode(x=alt.value(alt.expr("width + 24")), text="words:N")
    regions = alt.Chart(alt.NamedData("regions")).encode(x=x_of("start"))
    strip = regions.mark_rect(opacity=0.32).encode(
        x2="stop:Q", color=color, y=alt.value(-22), y2=alt.value(-4)
    )
    long = "(scale('x', datum.stop) - scale('x', datum.start)) > 6.6 * length(datum.words) + 4"
    won = alt.Chart(alt.NamedData("regions")).mark_text(fontWeight="bold", baseline="middle")
    won = won.encode(
        x=x_of("middle"),
        y=alt.value(-13),
        text=alt.Text(value=alt.expr(f"{long} ? datum.words : ''")),
    )
    turns = alt.Chart(alt.NamedData("turns")).encode(x=x)
    borders = turns.mark_rule(strokeDash=[2, 3], opacity=0.7)
    named = turns.mark_text(baseline="bottom", dy=-26).encode(y=alt.value(0), text="words:N")
    marker = alt.Chart(alt.NamedData("marker")).encode(x=x)
    rule = marker.mark_rule(strokeWidth=2.5)
    said = marker.mark_text(
        align=alt.expr("datum.side"),
        dx=alt.expr("datum.shift"),
        fontWeight="bold",
        baseline="bottom",
        dy=-5,
        **HALO,
    )
    said = said.encode(y=alt.value(18), text="words:N")
    chart = alt.layer(strip, won, borders, named, lines, symbols, rule, said, signs, words)
    return finished(
        chart,
        "Which allreduce is the fastest, for which message?",
        300,
        left=74,
        right=150,
        top=46,
        bottom=44,
        table={
            "regions": {"words": "fastest", "start": "from (B)", "stop": "to (B)"},
            "lines": {"line": "algorithm", "size": "message (B)", "seconds": "time (s)"},
        },
    )


def nics_chart() -> dict[str, Any]:
    """Bars of an allreduce's seconds by cause, fastest on top, with what went through the NICs."""
    x = alt.X("start:Q", title="time of one allreduce", axis=axis_of(labelExpr=SI.format("s")))
    x = x.scale(domainMin=0, nice=False)
    y = alt.Y("algorithm:N", title=None, sort=alt.EncodingSortField("order", "min"))
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=160))
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=0,
        legendY=-26,
        direction="horizontal",
        symbolType="square",
        columnPadding=14,
    )
    color = alt.Color("cause:N", legend=legend).scale(
        domain=list(CAUSES), range=list(CAUSES.values())
    )
    bars = (
        alt.Chart(alt.NamedData("parts"))
        .mark_bar()
        .encode(
            x=x, x2="stop:Q", y=y, color=color, tooltip=tooltip_of("algorithm", "cause", "time")
        )
    )
    ends = alt.Chart(alt.NamedData("ends")).encode(y=y)
    words = ends.mark_text(align="left", dx=6).encode(x=x_of("stop"), text="words:N")
    room = ends.mark_point(opacity=0).encode(x=x_of("room"))
    return finished(
        alt.layer(bars, words, room),
        "What do shared NICs cost?",
        210,
        left=130,
        top=34,
        right=30,
        bottom=44,
        table={
            "ends": {"algorithm": "", "words": "time and buffers that leave a node"},
            "parts": {"algorithm": "", "cause": "cause", "time": "time"},
        },
    )


def messages_chart() -> dict[str, Any]:
    """Space-time: a line for each message, from its rank and round to the next round; reduce or copy."""
    x = alt.X(
        "from:Q", title="rounds", axis=axis_of(format="d", tickMinStep=1, grid=False, tickCount=12)
    )
    x = x.scale(nice=False)
    axis = axis_of(format="d", tickMinStep=1, tickCount=16, domain=False, ticks=False)
    y = alt.Y("source:Q", title="rank", axis=axis).scale(reverse=True, nice=False, padding=12)
    kinds = ["reduce", "copy"]
    color = alt.Color("kind:N", legend=None).scale(domain=kinds, range=[SERIES[0], SERIES[1]])
    dash = alt.StrokeDash("kind:N", legend=None).scale(domain=kinds, range=[[1, 0], [5, 4]])
    shape = alt.Shape("kind:N", legend=None).scale(domain=kinds, range=["circle", "square"])
    bright = alt.condition("datum.now", alt.value(1.0), alt.value(0.42))
    stage = alt.Chart(alt.NamedData("stage")).mark_rect(opacity=0.13, color=SERIES[4])
    stage = stage.encode(x=x_of("start"), x2="stop:Q")
    ranks = alt.Chart(alt.NamedData("points")).mark_point(size=14, filled=True, color=SERIES[6])
    ranks = ranks.encode(x=x_of("round"), y=alt.Y("rank:Q"))
    arrows = alt.Chart(alt.NamedData("arrows")).encode(x=x, y=y, color=color, opacity=bright)
    width = alt.StrokeWidth("share:Q", legend=None).scale(domain=[0, 1], range=[1, 4])
    lines = arrows.mark_rule(clip=True).encode(
        x2="to:Q", y2="target:Q", strokeDash=dash, strokeWidth=width, tooltip=tooltip_of("words")
    )
    heads = alt.Chart(alt.NamedData("arrows")).encode(
        x=x_of("to"), y=alt.Y("target:Q"), color=color, shape=shape, opacity=bright
    )
    key = alt.Chart(alt.NamedData("key")).encode(
        x=alt.value(alt.expr("datum.at")), y=alt.value(-18)
    )
    signs = key.encode(color=color, shape=shape)
    words = key.mark_text(align="left", baseline="middle", dx=10).encode(text="words:N")
    ends = [both for marks in (heads, signs) for both in _filled_and_hollow(marks)]
    chart = alt.layer(stage, ranks, lines, *ends, words)
    return finished(
        chart,
        "Which rank sends to which, round by round? (the thicker, the more)",
        280,
        left=56,
        top=34,
        right=24,
        bottom=44,
        table={"arrows": {"words": "message"}},
    )


def measured_chart() -> dict[str, Any]:
    """Measured times over sizes: a bar from p10 to p90, a symbol at the median, a tick at the prediction."""
    x = alt.X("place:Q", title="message, the buffer of each rank").scale(
        type="log", nice=False, padding=28
    )
    x = x.axis(axis_of(labelExpr=SI.format("B"), grid=False, values=list(SIZES)))
    y = alt.Y("low:Q", title="time of one allreduce").scale(type="log", nice=False, padding=10)
    y = y.axis(axis_of(labelExpr=SECONDS, tickCount=5))
    names = ["ring", "rabenseifner", "MPI_Allreduce"]
    color, _, shape = _styles(
        *names,
        legend=alt.Legend(
            title=None,
            orient="none",
            legendX=0,
            legendY=-28,
            direction="horizontal",
            columnPadding=16,
            symbolSize=110,
            symbolOpacity=1,
            labelExpr="replace(datum.label, 'rab', 'Rab')",
        ),
    )
    points = alt.Chart(alt.NamedData("points"))
    spread = points.mark_rule(strokeWidth=3, opacity=0.5).encode(x=x, y=y, y2="high:Q", color=color)
    median = points.mark_point(filled=True, size=110, opacity=1).encode(
        x=x,
        y=alt.Y("median:Q"),
        color=color,
        shape=shape,
        tooltip=tooltip_of("algorithm", "time", "expected"),
    )
    price = points.transform_filter("isValid(datum.price)").mark_tick(
        orient="horizontal", thickness=3, size=17, color="currentColor"
    )
    price = price.encode(x=x, y=alt.Y("price:Q"))
    return finished(
        alt.layer(spread, price, median),
        "How long does it take? (symbol: median measured, bar: p10 to p90, dash: predicted)",
        260,
        left=74,
        top=36,
        right=24,
        bottom=44,
        table={
            "points": {
                "algorithm": "",
                "size": "message (B)",
                "low": "p10 (s)",
                "median": "median (s)",
                "high": "p90 (s)",
                "price": "predicted (s)",
            }
        },
    )


def _filled_and_hollow(marks: alt.Chart) -> tuple[alt.Chart, alt.Chart]:
    """A reduce is a disc, a copy an open square."""
    reduce = marks.transform_filter("datum.kind == 'reduce'").mark_point(filled=True, size=60)
    copy = marks.transform_filter("datum.kind == 'copy'")
    return reduce, copy.mark_point(filled=False, size=60, strokeWidth=2)


def x_of(field: str) -> alt.X:
    """The same axis for another field."""
    return alt.X(f"{field}:Q")


def _styles(*names: str, legend: Any = None) -> tuple[alt.Color, alt.StrokeDash, alt.Shape]:
    styles = [LINES[name] for name in names]
    return (
        alt.Color("line:N" if legend is None else "algorithm:N", legend=legend).scale(
            domain=names, range=[style[0] for style in styles]
        ),
        alt.StrokeDash("line:N", legend=None).scale(domain=names, range=[s[1] for s in styles]),
        alt.Shape("line:N" if legend is None else "algorithm:N", legend=legend).scale(
            domain=names, range=[style[2] for style in styles]
        ),
    )


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "message_sizes": sizes_chart,
    "nics": nics_chart,
    "messages": messages_chart,
    "measured": measured_chart,
}
