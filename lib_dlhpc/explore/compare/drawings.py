"""The drawings of a comparison."""

from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.compare.charts import CAUSES, LOOKS
from lib_dlhpc.results.palette import ENGINE

TIME = "time of one step"
ROUND = [digit * 10.0**power for power in range(-7, 5) for digit in (1, 2, 5)]  # s


@kit.parts_of(
    "", "part", "time", height=180, left=146, right=76, ends={"row": "", "words": "may be"}
)
def compared() -> Layers:
    """One step, every way."""
    x = kit.x_axis("start:Q", TIME, SI.format("s"), scale={"domainMin": 0})
    y = kit.rows_axis("row:N", paddingInner=0.3, paddingOuter=0.1)
    low, high, stop = (alt.X(f"{n}:Q", title=TIME) for n in ("low", "high", "stop"))
    bars = data("parts", x=x, x2="stop:Q", y=y, color=kit.colors("part:N", CAUSES, key=True))
    ends = data("ends", y=y, tooltip=kit.tooltip_of("words"))
    edge = ends.mark_tick(thickness=2, size=9, yOffset=8, color="currentColor")
    sums = data("sums", x=stop, y=y, text="words:N")
    said = kit.tooltip_of("row", "part", "size", "share")
    return (
        bars.mark_bar(stroke="#777777", strokeWidth=0.5).encode(tooltip=said),
        kit.words_inside(TIME, y, fill=alt.expr("datum.ink"), dy=-5),
        ends.mark_rule(strokeWidth=2, yOffset=8).encode(x=low, x2="high:Q"),
        edge.encode(x=low),
        edge.encode(x=high),
        sums.mark_text(align="left", dx=6, fontWeight="bold", **HALO),
    )


@drawing(height=240, left=84, points={"setting": "setting", "way": "", "time": TIME})
def swept() -> Layers:
    """Every setting, every way."""
    x = alt.X("setting:N", title="setting", sort=None).axis(kit.axis_of(labelAngle=0, grid=False))
    ticks: dict[str, Any] = {"values": ROUND, "tickCount": 12, "labelOverlap": "greedy"}
    y = kit.y_axis("seconds:Q", TIME, SI.format("s"), log=10, **ticks, scale={"padding": 14})
    ways = list(LOOKS)
    aside = alt.XOffset("way:N", sort=ways).scale(domain=ways)
    shapes, dashes, insides = zip(*LOOKS.values(), strict=True)
    shape = alt.Shape("way:N", legend=kit.ABOVE).scale(domain=ways, range=list(shapes))
    inside = alt.FillOpacity("way:N", legend=kit.ABOVE).scale(domain=ways, range=list(insides))
    points = data("points", x=x, xOffset=aside)
    spans = points.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=TIME), y2="high:Q")
    # Vega-Lite breaks a line whose points are moved aside by a field, so each way has a line of its own.
    lines = [
        data("points", x=x, y=y, order=alt.Order("place:Q"))
        .transform_filter(f"datum.joined && datum.way === '{way}'")
        .mark_line(
            strokeWidth=1.2,
            strokeDash=dashes[place],
            opacity=0.6,
            color=ENGINE,
            xOffset=alt.expr(f"bandwidth('x') * {(place + 0.5) / len(ways) - 0.5}"),
        )
        for place, way in enumerate(ways)
    ]
    marks = points.mark_point(
        fill=ENGINE, stroke=ENGINE, size=alt.expr("width < 400 ? 40 : 90"), opacity=1
    )
    said = kit.tooltip_of("setting", "way", "time")
    return spans, *lines, marks.encode(y=y, shape=shape, fillOpacity=inside, tooltip=said)
