"""The drawing of the Gantt chart, in Altair."""

from collections.abc import Callable
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import HATCH, SI, WORD, axis_of, finished
from lib_dlhpc.explore.gantt.chart import KEY_COLUMNS

PAPER = "var(--jp-layout-color0, Canvas)"


def gantt_chart() -> dict[str, Any]:
    """Bars on lanes, two or more lanes a rank; the height is a signal, for it follows the ranks."""
    x = alt.X("start:Q", title="time", axis=axis_of(labelExpr=SI.format("s")))
    x = x.scale(nice=False, zero=False)
    y = alt.Y("top:Q", axis=None).scale(domain=[0, 1], nice=False, reverse=True)
    opacity = alt.FillOpacity("opacity:Q", scale=None, legend=None)
    fill = alt.Fill("color:N", scale=None, legend=None)
    bars = alt.Chart(alt.NamedData("bars")).encode(x=x, x2="stop:Q", y=y, y2="bottom:Q")
    solid = bars.mark_rect(stroke=PAPER, clip=True).encode(
        fill=fill,
        fillOpacity=opacity,
        strokeWidth=alt.StrokeWidth("edge:Q", scale=None, legend=None),
        tooltip=alt.Tooltip("details", type="nominal"),
    )
    hatched = bars.transform_filter("datum.hatched")
    hatched = hatched.mark_rect(fill=HATCH, fillOpacity=0.4, tooltip=None, clip=True)
    room = "(scale('x', datum.stop) - scale('x', datum.start))"
    fitting = f"{room} > {WORD} * length(datum.words) + 6 ? datum.words : ''"
    words = alt.Chart(alt.NamedData("bars")).transform_calculate(
        center="(datum.start + datum.stop) / 2", middle="(datum.top + datum.bottom) / 2"
    )
    words = words.mark_text(fill=alt.expr("datum.ink"), fontSize=11, baseline="middle", dy=0.5)
    words = words.encode(x=alt.X("center:Q"), y="middle:Q", text=alt.Text(value=alt.expr(fitting)))
    ranks = alt.Chart(alt.NamedData("ranks")).encode(x=alt.value(-8), y="middle:Q")
    named = ranks.mark_text(align="right", baseline="bottom", dy=1).encode(text="words:N")
    noted = ranks.mark_text(align="right", baseline="top", dy=2, fontSize=11, fontWeight="bold")
    key = alt.Chart(alt.NamedData("key")).encode(
        x=alt.value(alt.expr(f"datum.column * (width + 60) / {KEY_COLUMNS} - 60")),
        y=alt.value(alt.expr("datum.line * 18")),
    )
    square: dict[str, Any] = {"shape": "square", "size": 150, "strokeWidth": 1}
    sign = key.mark_point(filled=True, opacity=1, **square).encode(fill=fill, fillOpacity=opacity)
    sign_hatched = key.transform_filter("datum.hatched")
    sign_hatched = sign_hatched.mark_point(fill=HATCH, stroke=None, fillOpacity=0.6, **square)
    said = key.mark_text(align="left", baseline="middle", dx=11).encode(text="words:N")
    chart = alt.layer(
        solid, hatched, words, named, noted.encode(text="note:N"), sign, sign_hatched, said
    )
    return finished(
        chart,
        "One step, rank by rank (upper bar: computation, lower bar: communication)",
        90,
        left=76,
        top=58,
        right=24,
        bottom=44,
        table={
            "bars": {
                "rank": "rank",
                "event": "event",
                "look": "",
                "start": "from (s)",
                "seconds": "time (s)",
                "bytes": "bytes",
            }
        },
    )


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {"gantt": gantt_chart}
