"""The drawings of a comparison, in Altair."""

from collections.abc import Callable
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import HALO, SI, WORD, axis_of, finished, tooltip_of
from lib_dlhpc.explore.compare.charts import CAUSES, LOOKS


def compared_chart() -> dict[str, Any]:
    """Stacked bars of a step's seconds, a row for each way, with the span in which it may be."""
    title = "time of one step"
    x = alt.X("start:Q", title=title).scale(domainMin=0, nice=False)
    x = x.axis(axis_of(labelExpr=SI.format("s")))
    y = alt.Y("row:N", title=None, sort=None).scale(paddingInner=0.3, paddingOuter=0.1)
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=170))
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=-140,
        legendY=-70,
        direction="horizontal",
        columns=4,
        symbolType="square",
        columnPadding=14,
        rowPadding=3,
        labelLimit=0,
        clipHeight=16,
    )
    color = alt.Color("part:N").scale(domain=list(CAUSES), range=list(CAUSES.values()))
    parts = alt.Chart(alt.NamedData("parts")).encode(x=x, x2="stop:Q", y=y)
    bars = parts.mark_bar(stroke="#777777", strokeWidth=0.5)
    bars = bars.encode(
        color=color.legend(legend), tooltip=tooltip_of("row", "part", "time", "share")
    )
    room = "(datum.part_of_axis * width)"
    words = (
        f"{room} > {WORD} * length(datum.long) + 8 ? datum.long : "
        f"{room} > {WORD} * length(datum.short) + 6 ? datum.short : ''"
    )
    inside = alt.Chart(alt.NamedData("parts")).mark_text(fill=alt.expr("datum.ink"), dy=-5)
    middle = alt.X("middle:Q", title=title)
    inside = inside.encode(x=middle, y=y, text=alt.Text(value=alt.expr(words)))
    ends = alt.Chart(alt.NamedData("ends")).encode(y=y, tooltip=tooltip_of("words"))
    span = ends.mark_rule(strokeWidth=2, yOffset=8).encode(
        x=alt.X("low:Q", title=title), x2="high:Q"
    )
    edges = [
        ends.mark_tick(thickness=2, size=9, yOffset=8, color="currentColor").encode(
            x=alt.X(f"{edge}:Q", title=title)
        )
        for edge in ("low", "high")
    ]
    sums = alt.Chart(alt.NamedData("sums")).mark_text(align="left", dx=6, fontWeight="bold", **HALO)
    sums = sums.encode(x=alt.X("stop:Q", title=title), y=y, text="words:N")
    return finished(
        alt.layer(bars, inside, span, *edges, sums),
        "One step, every way",
        180,
        left=146,
        top=76,
        right=76,
        bottom=44,
        table={
            "parts": {"row": "", "part": "part", "time": "time", "share": "share"},
            "ends": {"row": "", "words": "may be"},
        },
    )


def swept_chart() -> dict[str, Any]:
    """The seconds of a step for each setting of a sweep, a point for each way, with its span."""
    x = alt.X("setting:N", title="setting", sort=None).axis(axis_of(labelAngle=0, grid=False))
    y = alt.Y("seconds:Q", title="time of one step").scale(type="log", nice=False, padding=14)
    y = y.axis(axis_of(labelExpr=SI.format("s")))
    ways = list(LOOKS)
    aside = alt.XOffset("way:N", sort=ways).scale(domain=ways)
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=-60,
        legendY=-56,
        direction="horizontal",
        columns=alt.expr("width < 400 ? 2 : 4"),
        columnPadding=14,
        labelLimit=0,
    )
    colors, shapes = zip(*LOOKS.values(), strict=True)
    color = alt.Color("way:N").scale(domain=ways, range=list(colors)).legend(legend)
    shape = alt.Shape("way:N").scale(domain=ways, range=list(shapes)).legend(legend)
    points = alt.Chart(alt.NamedData("points")).encode(x=x, xOffset=aside)
    spans = points.mark_rule(strokeWidth=2).encode(
        y=alt.Y("low:Q", title="time of one step"), y2="high:Q", color=color
    )
    # Vega-Lite breaks a line whose points are moved aside by a field, so each way has a line of its own.
    lines = [
        alt.Chart(alt.NamedData("points"))
        .transform_filter(f"datum.joined && datum.way === '{way}'")
        .mark_line(
            strokeWidth=1.2,
            opacity=0.6,
            color=colors[place],
            xOffset=alt.expr(f"bandwidth('x') * {(place + 0.5) / len(ways) - 0.5}"),
        )
        .encode(x=x, y=y, order=alt.Order("place:Q"))
        for place, way in enumerate(ways)
    ]
    size = alt.expr("width < 400 ? 40 : 90")
    marks = points.mark_point(filled=True, size=size, opacity=1).encode(
        y=y, color=color, shape=shape, tooltip=tooltip_of("setting", "way", "time")
    )
    return finished(
        alt.layer(spans, *lines, marks),
        "Every setting, every way",
        240,
        left=84,
        top=62,
        bottom=44,
        table={"points": {"setting": "setting", "way": "", "time": "time of one step"}},
    )


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "compared": compared_chart,
    "swept": swept_chart,
}
