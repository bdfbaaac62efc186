"""The drawing of the Gantt chart, in Altair."""

import altair as alt

from lib_dlhpc.explore.blocks.drawing import HATCH, SI, WORD, Layers, data, drawing, hatched, x_axis

PAPER = "var(--jp-layout-color0, Canvas)"
ROOM = "(scale('x', datum.stop) - scale('x', datum.start))"
FITTING = f"{ROOM} > {WORD} * length(datum.words) + 6 ? datum.words : ''"
LOOK = {
    "fill": alt.Fill("color:N", scale=None, legend=None),
    "fillOpacity": alt.FillOpacity("opacity:Q", scale=None, legend=None),
}


@drawing(
    height=90,
    left=76,
    bars={
        "rank": "rank",
        "event": "event",
        "look": "",
        "start": "from (s)",
        "seconds": "time (s)",
        "bytes": "bytes",
    },
)
def gantt() -> Layers:
    """One step, rank by rank. Upper bar: computation; lower bar: communication."""
    x = x_axis("start:Q", "time", SI.format("s"), scale={"zero": False})
    y = alt.Y("top:Q", axis=None).scale(domain=[0, 1], nice=False, reverse=True)
    bars = data("bars", x=x, x2="stop:Q", y=y, y2="bottom:Q")
    edge = alt.StrokeWidth("edge:Q", scale=None, legend=None)
    solid = bars.mark_rect(stroke=PAPER, clip=True).encode(**LOOK, strokeWidth=edge)
    words = data("bars").transform_calculate(
        center="(datum.start + datum.stop) / 2", middle="(datum.top + datum.bottom) / 2"
    )
    words = words.mark_text(fill=alt.expr("datum.ink"), fontSize=11, baseline="middle", dy=0.5)
    text = alt.Text(value=alt.expr(FITTING))
    ranks = data("ranks", x=alt.value(-8), y="middle:Q")
    noted = ranks.mark_text(align="right", baseline="top", dy=2, fontSize=11, fontWeight="bold")
    return (
        solid.encode(tooltip=alt.Tooltip("details", type="nominal")),
        hatched(bars.transform_filter("datum.hatched"), 0.4, "rect", fill=HATCH, clip=True),
        words.encode(x=alt.X("center:Q"), y="middle:Q", text=text),
        ranks.mark_text(align="right", baseline="bottom", dy=1).encode(text="words:N"),
        noted.encode(text="note:N"),
    )
