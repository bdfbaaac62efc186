"""The drawings of the lesson on one step, in Altair."""

from collections.abc import Callable
from functools import partial
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import HALO, HATCH, SI, axis_of, finished, tooltip_of
from lib_dlhpc.explore.one_step.charts import PASSES
from lib_dlhpc.results.palette import SERIES

BLUE, ORANGE, GREEN, RED, GRAY = (SERIES[k] for k in (0, 4, 2, 1, 6))
DECADES = [10.0**k for k in range(-12, 18)]
POWERS = [2**k for k in range(3, 13)]
SECONDS = [d * 10.0**k for k in range(-9, 6) for d in (1, 2, 5)]
LINES = {"a step": (BLUE, [1, 0]), "in proportion": (GRAY, [4, 3])}
KINDS = {
    "products": (BLUE, "circle"),
    "messages": (BLUE, "circle"),
    "sums": (BLUE, "circle"),
    "copies": (ORANGE, "triangle-down"),
}


def roofline_chart() -> dict[str, Any]:
    """FLOP/s against FLOP a byte, both logarithmic: the roof, a layer at every batch, where it stands."""
    x = alt.X("x:Q", title="arithmetic intensity (FLOP a byte)").scale(type="log", nice=False)
    x = x.axis(axis_of(values=DECADES, grid=False, labelExpr="format(datum.value, ',~r')"))
    y = alt.Y("y:Q", title="rate").scale(type="log", nice=False)
    y = y.axis(axis_of(labelExpr=SI.format("FLOP/s"), values=DECADES))
    room = _room(x, y)
    roof = alt.Chart(alt.NamedData("roof")).mark_line(strokeWidth=3, color="currentColor")
    reached = alt.Chart(alt.NamedData("reached")).encode(x=x, y=y)
    rule = reached.mark_rule(strokeDash=[3, 3], strokeWidth=1.5).encode(x2="end:Q")
    large = reached.mark_text(align="right", baseline="top", dy=5, fontSize=11, **HALO)
    large = large.encode(x="end:Q", text="words:N")
    names = alt.Chart(alt.NamedData("names")).encode(x=x, y=y, text="words:N")
    named = names.mark_text(align="right", baseline="bottom", dy=-5, fontWeight="bold", **HALO)
    path = alt.Chart(alt.NamedData("path")).encode(x=x, y=y, order="batch:Q")
    line = path.mark_line(strokeWidth=1.5, color=BLUE, opacity=0.6)
    dots = path.mark_point(filled=True, size=30, color=BLUE, opacity=0.8)
    now = alt.Chart(alt.NamedData("now")).encode(x=x, y=y)
    gap = now.mark_rule(strokeDash=[2, 3], color=RED, strokeWidth=1.5).encode(y2="roof:Q")
    here = now.mark_point(shape="diamond", filled=True, size=150, opacity=1, color=RED)
    words = _corner(now, low=True)
    return finished(
        alt.layer(
            room,
            roof.encode(x=x, y=y),
            rule,
            gap,
            line,
            dots.encode(tooltip=tooltip_of("details")),
            named,
            large,
            here,
            words,
        ),
        "The roof of the device, and a layer at batches 1 to 4,096",
        280,
        left=84,
        right=24,
        top=20,
        bottom=44,
        table={
            "path": {"batch": "batch", "x": "FLOP a byte", "y": "FLOP/s"},
            "now": {"words": "now"},
        },
    )


def layers_chart() -> dict[str, Any]:
    """Stacked bars of the passes of each layer, with what bounds it in words."""
    x = alt.X("start:Q", title="time of one step").scale(domainMin=0, nice=False)
    x = x.axis(axis_of(labelExpr=SI.format("s"), tickCount=4))
    y = alt.Y("row:N", title=None, sort=alt.EncodingSortField("order", "min"))
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=120))
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=-110,
        legendY=-46,
        direction="horizontal",
        columns=4,
        symbolType="square",
        columnPadding=12,
        labelLimit=0,
        clipHeight=16,
    )
    color = alt.Color("part:N", legend=legend).scale(
        domain=list(PASSES), range=list(PASSES.values())
    )
    bars = alt.Chart(alt.NamedData("parts")).encode(x=x, x2="stop:Q", y=y, color=color)
    drawn = bars.mark_bar(stroke=GRAY, strokeWidth=0.5).encode(tooltip=tooltip_of("details"))
    ends = alt.Chart(alt.NamedData("ends")).encode(y=y, x=alt.X("stop:Q", title="time of one step"))
    words = ends.mark_text(align="left", dx=6, fontSize=11, **HALO).encode(text="words:N")
    return finished(
        alt.layer(drawn, words),
        "Where does the time of a step go, and what bounds it?",
        270,
        left=122,
        right=130,
        top=54,
        bottom=44,
        table={
            "ends": {"row": "", "words": "share, and what bounds it"},
            "parts": {"details": "time"},
        },
    )


def batch_chart() -> dict[str, Any]:
    """Time of a step against the batch, beside what it would be in proportion."""
    x = alt.X("x:Q", title="batch (samples)").scale(type="log", base=2, nice=False)
    x = x.axis(axis_of(labelExpr="format(datum.value, ',d')", grid=False))
    y = alt.Y("y:Q", title="time of one step").scale(type="log", nice=False)
    y = y.axis(axis_of(labelExpr=SI.format("s"), values=SECONDS, labelOverlap=True))
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(y=y)
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=0,
        legendY=-28,
        direction="horizontal",
        columns=2,
        symbolType="stroke",
        symbolSize=400,
        symbolStrokeWidth=2,
        columnPadding=16,
        labelLimit=0,
    )
    names, styles = list(LINES), list(LINES.values())
    lines = (
        alt.Chart(alt.NamedData("lines"))
        .mark_line(strokeWidth=2.5, clip=True)
        .encode(
            x=x,
            y=y,
            color=alt.Color("line:N", legend=legend).scale(
                domain=names, range=[s[0] for s in styles]
            ),
            strokeDash=alt.StrokeDash("line:N", legend=legend).scale(
                domain=names, range=[s[1] for s in styles]
            ),
        )
    )
    wall = alt.Chart(alt.NamedData("wall")).encode(x=x)
    beyond = wall.mark_rect(opacity=0.08, color=RED).encode(x2="end:Q")
    hatched = wall.mark_rect(fill=HATCH, fillOpacity=0.14, tooltip=None).encode(x2="end:Q")
    edge = wall.mark_rule(strokeWidth=2.5, color=RED)
    said = wall.mark_text(
        align=alt.expr("datum.side"), dx=alt.expr("datum.shift"), dy=-6, baseline="bottom", **HALO
    )
    said = said.encode(y=alt.value(alt.expr("height")), text="words:N")
    now = alt.Chart(alt.NamedData("now")).encode(x=x, y=y)
    here = now.mark_point(shape="diamond", filled=True, size=120, opacity=1, color=RED)
    words = _corner(now, low=False)
    return finished(
        alt.layer(room, beyond, hatched, edge, said, lines, here, words),
        "How does a step grow with its batch?",
        200,
        left=74,
        right=24,
        top=36,
        bottom=44,
        table={"lines": {"line": "", "x": "batch", "y": "time (s)"}, "now": {"words": "now"}},
    )


def measured_chart(
    title: str, x_title: str, y_title: str, x_unit: str, y_unit: str
) -> dict[str, Any]:
    """Raw points, the fit and its band, and where the slider stands; both axes logarithmic."""
    binary = x_unit == ""
    x = alt.X("x:Q", title=x_title).scale(
        type="log", base=2 if binary else 10, nice=False, padding=6
    )
    shown = "format(datum.value, ',d')" if binary else SI.format(x_unit)
    x = x.axis(axis_of(labelExpr=shown, grid=False, values=POWERS if binary else DECADES))
    y = alt.Y("y:Q", title=y_title).scale(type="log", nice=False)
    y = y.axis(axis_of(labelExpr=SI.format(y_unit), values=DECADES))
    fit = alt.Chart(alt.NamedData("fit")).encode(x=x)
    band = fit.mark_area(opacity=0.2, color=GREEN).encode(y=alt.Y("low:Q"), y2="high:Q")
    line = fit.mark_line(strokeWidth=2.5, color=GREEN).encode(y=y)
    names = list(KINDS)
    points = alt.Chart(alt.NamedData("points")).mark_point(size=44, opacity=0.7, strokeWidth=1.5)
    points = points.encode(
        x=x,
        y=y,
        tooltip=tooltip_of("details"),
        color=alt.Color("kind:N", legend=None).scale(
            domain=names, range=[KINDS[n][0] for n in names]
        ),
        shape=alt.Shape("kind:N", legend=None).scale(
            domain=names, range=[KINDS[n][1] for n in names]
        ),
    )
    step = alt.Chart(alt.NamedData("step")).encode(x=x)
    rule = step.mark_rule(strokeDash=[6, 3], strokeWidth=2, color=RED)
    other = step.mark_text(
        align=alt.expr("datum.side"), dx=alt.expr("datum.shift"), dy=-24, baseline="bottom", **HALO
    ).encode(y=alt.value(alt.expr("height")), text="words:N")
    now = alt.Chart(alt.NamedData("now")).encode(x=x)
    marker = now.mark_rule(strokeWidth=2, opacity=0.4)
    here = now.mark_point(shape="diamond", filled=True, size=110, opacity=1, color=RED).encode(y=y)
    words = _corner(now, low=y_unit != "s")  # rates rise and stay, times stay and rise
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(y=y)
    return finished(
        alt.layer(room, marker, band, line, rule, points, other, here, words),
        title,
        190,
        left=84,
        right=24,
        top=14,
        bottom=44,
        table={"now": {"words": "at the slider"}, "step": {"words": ""}},
    )


def _corner(now: alt.Chart, low: bool) -> alt.Chart:
    """Return the words of `now` where no line comes: low at the right, or high at the left."""
    edge = "height" if low else "0"
    return now.mark_text(
        align="right" if low else "left",
        baseline="line-bottom" if low else "line-top",
        dx=-8 if low else 8,
        dy=-20 if low else 4,
        lineBreak="\n",
        fontWeight="bold",
        **HALO,
    ).encode(
        x=alt.value(alt.expr("width" if low else "0")), y=alt.value(alt.expr(edge)), text="words:N"
    )


def _room(x: alt.X, y: alt.Y) -> alt.Chart:
    return alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(x=x, y=y)


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "one_step_roofline": roofline_chart,
    "one_step_layers": layers_chart,
    "one_step_batch": batch_chart,
    "one_step_products": partial(
        measured_chart,
        "Products of square matrices (points: each repeat; line and band: the fit)",
        "edge of the matrices",
        "rate",
        "",
        "FLOP/s",
    ),
    "one_step_messages": partial(
        measured_chart,
        "A message between two ranks, one way (line and band: the fit)",
        "size of the message",
        "time",
        "B",
        "s",
    ),
    "one_step_sums": partial(
        measured_chart,
        "Arrays added up (circles) and copied (triangles)",
        "size of an array",
        "bytes moved a second",
        "B",
        "B/s",
    ),
}
