"""The drawings of the lesson on hybrid parallelism, in Altair."""

from collections.abc import Callable, Mapping
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import HALO, HATCH, SI, WORD, axis_of, finished, tooltip_of
from lib_dlhpc.explore.blocks.line_drawings import by_two, line_marks, marker, values_beside
from lib_dlhpc.explore.data_parallel.charts import LINES
from lib_dlhpc.explore.hybrid_parallel.charts import HELD, TERMS
from lib_dlhpc.results import palette

RATES = [10.0**k * d for k in range(-2, 6) for d in (1, 2, 5)]


def terms_chart() -> dict[str, Any]:
    """Stacked bars of a step's seconds: a combination beside two or three others."""
    chart = alt.layer(*_stacks("time of one step", "s", TERMS))
    return finished(
        chart,
        "Where does the time of a step go?",
        190,
        left=178,
        top=72,
        right=70,
        bottom=44,
        table={"parts": {"row": "", "part": "part", "details": "time", "share": "share"}},
    )


def memory_chart() -> dict[str, Any]:
    """Stacked bars of what one device holds, against the line of what it has."""
    wall = alt.Chart(alt.NamedData("wall")).encode(x="capacity:Q")
    beyond = wall.mark_rect(opacity=0.08, color=palette.SERIES[1]).encode(x2="end:Q")
    rule = wall.mark_rule(strokeWidth=2.5, color=palette.SERIES[1])
    said = wall.mark_text(
        align=alt.expr("datum.side"), baseline="bottom", dy=-4, fontWeight="bold"
    ).encode(y=alt.value(0), text="words:N")
    *bars, sums = _stacks("memory of the fullest device", "B", HELD)
    chart = alt.layer(beyond, *bars, rule, sums, said)
    return finished(
        chart,
        "Does it fit on a device?",
        190,
        left=178,
        top=66,
        right=86,
        bottom=44,
        table={"parts": {"row": "", "part": "part", "details": "size", "share": "share"}},
    )


def scaling_chart() -> dict[str, Any]:
    """Samples a second against GPUs: more samples at once, or more GPUs for each."""
    x = by_two("GPUs")
    y = alt.Y("y:Q", title="samples a second").scale(type="log", nice=False, padding=12)
    y = y.axis(axis_of(labelExpr="format(datum.value, '~s')", values=RATES, labelOverlap=True))
    points = alt.Chart(alt.NamedData("published")).encode(x=x, y=y)
    diamond = points.mark_point(
        shape="diamond", size=150, filled=False, strokeWidth=2.5, opacity=1, color="currentColor"
    )
    chart = alt.layer(
        marker(x),
        *line_marks(x, y, ("weak", "strong", "ideal"), LINES),
        diamond.encode(tooltip=tooltip_of("words")),
        *values_beside(x, y),
    )
    return finished(
        chart,
        "How far does it scale? (diamond: published, and used to calibrate)",
        200,
        left=64,
        right=70,
        top=14,
        bottom=44,
        table={
            "lines": {"line": "scaling", "x": "GPUs", "y": "samples a second"},
            "published": {"words": "published"},
        },
    )


def map_chart() -> dict[str, Any]:
    """All ways to share out the devices: tensor by pipeline, what is left is data."""
    x = alt.X("pipeline:O", title="pipeline: stages", sort="ascending")
    x = x.axis(axis_of(labelAngle=0, grid=False, ticks=False, domain=False))
    y = alt.Y("tensor:O", title="tensor: GPUs a layer", sort="ascending")
    y = y.axis(axis_of(grid=False, ticks=False, domain=False))
    cells = alt.Chart(alt.NamedData("cells")).encode(x=x, y=y)
    details = tooltip_of("details")
    plain = cells.transform_filter("datum.fits").mark_rect(stroke="white", strokeWidth=1)
    plain = plain.encode(color=alt.Color("color:N", scale=None), tooltip=details)
    wall = cells.transform_filter("!datum.fits && datum.legal")
    pale = wall.mark_rect(color=palette.SERIES[1], opacity=0.12).encode(tooltip=details)
    hatched = wall.mark_rect(fill=HATCH, fillOpacity=0.3, tooltip=None)
    marked = cells.transform_filter("datum.mark").mark_rect(
        filled=False, stroke="currentColor", strokeWidth=2.5
    )
    short = "bandwidth('x') > 46 ? datum.words : datum.short"
    words = cells.mark_text(dy=alt.expr("datum.mark ? -7 : 0"), fontSize=12, fontWeight=600)
    inked = words.transform_filter("datum.fits").encode(text=alt.Text(value=alt.expr(short)))
    inked = inked.encode(color=alt.Color("ink:N", scale=None))
    haloed = words.transform_filter("!datum.fits").encode(text=alt.Text(value=alt.expr(short)))
    name = cells.transform_filter("datum.mark && datum.fits").mark_text(dy=8, fontSize=11)
    name = name.encode(text="mark:N", color=alt.Color("ink:N", scale=None))
    chart = alt.layer(plain, pale, hatched, marked, inked, haloed, name)
    return finished(
        chart,
        "Which layout is the fastest? Seconds of a step (hatched: does not fit, with the memory needed)",
        230,
        left=74,
        right=14,
        top=14,
        bottom=44,
        table={
            "cells": {
                "tensor": "tensor",
                "pipeline": "pipeline",
                "data": "data",
                "details": "outcome",
            }
        },
    )


def _stacks(title: str, unit: str, looks: Mapping[str, tuple[str, bool]]) -> list[alt.Chart]:
    """Bars of parts, with words in them where there is room and the sum behind them."""
    x = alt.X("start:Q", title=title).scale(domainMin=0, nice=False)
    x = x.axis(axis_of(labelExpr=SI.format(unit)))
    y = alt.Y("row:N", title=None, sort=None).scale(paddingInner=0.25, paddingOuter=0.1)
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=170))
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=-170,
        legendY=-66 if unit == "s" else -60,
        direction="horizontal",
        columns=5,
        symbolType="square",
        columnPadding=14,
        rowPadding=3,
        labelLimit=0,
        clipHeight=16,
    )
    colors = [color for color, _ in looks.values()]
    color = alt.Color("part:N").scale(domain=list(looks), range=colors).legend(legend)
    parts = alt.Chart(alt.NamedData("parts")).encode(x=x, x2="stop:Q", y=y)
    bars = parts.mark_bar(stroke="white", strokeWidth=0.5)
    bars = bars.encode(color=color, tooltip=tooltip_of("row", "part", "details", "share"))
    hatched = parts.transform_filter("datum.still").mark_bar(fill=HATCH, fillOpacity=0.35)
    room = "(datum.part_of_axis * width)"
    words = (
        f"{room} > {WORD} * length(datum.long) + 8 ? datum.long : "
        f"{room} > {WORD} * length(datum.short) + 6 ? datum.short : ''"
    )
    inside = alt.Chart(alt.NamedData("parts")).mark_text(fill=alt.expr("datum.ink"))
    inside = inside.encode(
        x=alt.X("middle:Q", title=title), y=y, text=alt.Text(value=alt.expr(words))
    )
    sums = alt.Chart(alt.NamedData("sums")).mark_text(align="left", dx=5, fontWeight="bold", **HALO)
    sums = sums.encode(x="stop:Q", y=y, text="words:N")
    return [bars, hatched, inside, sums]


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "hybrid_terms": terms_chart,
    "hybrid_memory": memory_chart,
    "hybrid_scaling": scaling_chart,
    "hybrid_map": map_chart,
}
