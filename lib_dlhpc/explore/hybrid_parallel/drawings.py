"""The drawings of the lesson on hybrid parallelism: stacked bars, scaling, the map of layouts."""

from collections.abc import Mapping
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import BESIDE, HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.data_parallel.drawings import LINES
from lib_dlhpc.explore.hybrid_parallel.charts import HATCHED, HELD, TERMS
from lib_dlhpc.explore.hybrid_parallel.domain import NODES, RACK, RANKS
from lib_dlhpc.results.palette import SERIES

PUBLISHED = {"words": "published"}
RATES = [10.0**k * d for k in range(-2, 6) for d in (1, 2, 5)]
SHORT = "bandwidth('x') > 46 ? datum.words : datum.short"


@kit.parts_of("", "part", "time", left=178, right=70)
def hybrid_terms() -> Layers:
    """Where does the time of a step go?"""
    return _bars("time of one step", "s", TERMS)


@kit.parts_of("", "part", "size", left=178, top=24, right=86)
def hybrid_memory() -> Layers:
    """Does it fit on a device?"""
    *beyond, edge = kit.wall(x="capacity:Q", x2="end:Q")
    said = kit.on_top(data("wall", x="capacity:Q"), align=BESIDE["align"], fontWeight="bold")
    *bars, sums = _bars("memory of the fullest device", "B", HELD)
    return *beyond, *bars, edge, sums, said


def _bars(title: str, unit: str, inks: Mapping[str, str]) -> Layers:
    """Bars of parts, with words in them where there is room and the sum behind them."""
    x = kit.x_axis("start:Q", title, SI.format(unit), scale={"domainMin": 0})
    y = kit.rows_axis("row:N", paddingInner=0.25, paddingOuter=0.1)
    parts = data("parts", x=x, x2="stop:Q", y=y)
    bars = parts.mark_bar(stroke="white", strokeWidth=0.5).encode(
        color=kit.colors("part:N", inks, key=True),
        tooltip=kit.tooltip_of("row", "part", "size", "share"),
    )
    some = parts.transform_filter(alt.FieldOneOfPredicate(field="part", oneOf=list(HATCHED)))
    sums = data("sums", x="stop:Q", y=y, text="words:N")
    return (
        bars,
        kit.hatched(some, 0.35),
        kit.words_inside(title, y, fill=alt.expr("datum.ink")),
        sums.mark_text(align="left", dx=5, fontWeight="bold", **HALO),
    )


@kit.lines_of(
    "scaling", "GPUs", "samples per second", height=200, left=64, right=70, published=PUBLISHED
)
def hybrid_scaling() -> Layers:
    """How far does it scale? Diamond: published, and used to calibrate."""
    ticks: dict[str, Any] = {"values": RATES, "labelOverlap": True, "scale": {"padding": 12}}
    x = kit.by_two("GPUs")
    y = kit.y_axis("y:Q", "samples per second", "format(datum.value, '~s')", log=10, **ticks)
    diamond = kit.published(x, y, "words")
    lines = kit.line_marks(x, y, LINES, "weak", "strong", "ideal")
    return kit.marker(x), *lines, diamond, *kit.values_beside(x, y)


@kit.lines_of("", "ranks", "exposed, of a step", height=200, left=64, right=96)
def hybrid_domain() -> Layers:
    """How much of a step waits for the exchange of a group?"""
    x = kit.x_axis("x:Q", "ranks of a group", kit.WHOLE, log=2, values=list(RANKS), grid=False)
    y = kit.y_axis("y:Q", "exposed, of a step", kit.PERCENT, scale={"domainMin": 0, "nice": True})
    looks = dict(zip((NODES, RACK), (LINES["weak"], LINES["strong"]), strict=True))
    return kit.marker(x), *kit.line_marks(x, y, looks, NODES, RACK), *kit.values_beside(x, y)


@drawing(
    height=230,
    right=14,
    cells={"tensor": "tensor", "pipeline": "pipeline", "data": "data", "details": "outcome"},
)
def hybrid_map() -> Layers:
    """Which layout is the fastest? Seconds of a step; hatched: does not fit, with the memory needed."""
    plain = {"grid": False, "ticks": False, "domain": False}
    x = alt.X("pipeline:O", title="pipeline: stages", sort="ascending")
    y = alt.Y("tensor:O", title="tensor: GPUs per layer", sort="ascending")
    cells = data(
        "cells", x=x.axis(kit.axis_of(labelAngle=0, **plain)), y=y.axis(kit.axis_of(**plain))
    )
    fits = cells.transform_filter("datum.fits").mark_rect(stroke="white", strokeWidth=1)
    wall = cells.transform_filter("!datum.fits && datum.legal")
    marked = cells.transform_filter("datum.mark")
    words = cells.mark_text(dy=alt.expr("datum.mark ? -7 : 0"), fontSize=12, fontWeight=600)
    words = words.encode(text=alt.Text(value=alt.expr(SHORT)))
    ink = alt.Color("ink:N", scale=None)
    name = cells.transform_filter("datum.mark && datum.fits").mark_text(dy=8, fontSize=11)
    fitting = alt.Text(
        value=alt.expr("bandwidth('x') > 6.5 * length(datum.mark) ? datum.mark : ''")
    )
    details = kit.tooltip_of("details")
    return (
        fits.encode(color=alt.Color("color:N", scale=None), tooltip=details),
        wall.mark_rect(color=SERIES[1], opacity=0.12).encode(tooltip=details),
        kit.hatched(wall, 0.3, "rect", fill=kit.HATCH),
        marked.mark_rect(filled=False, stroke="currentColor", strokeWidth=2.5),
        words.transform_filter("datum.fits").encode(color=ink),
        words.transform_filter("!datum.fits"),
        name.encode(text=fitting, color=ink),
    )
