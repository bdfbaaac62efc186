"""The drawings, written in Altair; built.py compiles them once and keeps the result.

Importing Altair takes more than a second and 65 MB, so no visitor's kernel does. Every drawing is one view of
fixed height whose width follows the page. Whatever a color says, a word, a dash or a hatching says as well.
"""

from collections.abc import Callable
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.charts import LEDGER, LINES, PARTS, TOTALS

HATCH = (
    "url(#dlhpc-hatch)"  # a pattern that figure.js defines: what is beyond a wall, or only a bound
)

# 0.0021 reads "2.1 ms": the SI prefix goes with the unit.
SI = "replace(format(datum.value, '~s'), /([a-zA-Zµ]?)$/, ' $1') + '{}'"
WHOLE = "datum.value % 1 ? '' : format(datum.value, ',d')"  # a short axis has ticks between them
PERCENT = "format(datum.value, '.0%')"
HALO: dict[str, Any] = {
    "stroke": "var(--dl-card, Canvas)",
    "strokeWidth": 3,
}  # round words over lines
WORD = 7.0  # px, a character of the labels


def step_chart() -> dict[str, Any]:
    """Stacked bars of a step's seconds; below them the bound without any overlap, hatched."""
    x = alt.X("start:Q", title="time of one step", axis=axis_of(labelExpr=SI.format("s")))
    y = alt.Y("row:N", title=None, sort=None, axis=axis_of(grid=False, ticks=False, domain=False))
    y = y.scale(domain=["predicted", "nothing hidden"], paddingInner=0.3, paddingOuter=0.1)
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=-100,
        legendY=-70,
        direction="horizontal",
        columns=4,
        symbolType="square",
        columnPadding=14,
        rowPadding=3,
        labelLimit=0,
        clipHeight=16,
    )
    color = alt.Color("part:N").scale(domain=list(PARTS), range=list(PARTS.values()))
    parts = alt.Chart(alt.NamedData("parts"))
    bars = parts.encode(x=x, x2="stop:Q", y=y)
    tooltip = tooltip_of("part", "time", "share")
    sure = bars.transform_filter("!datum.bound").mark_bar()
    sure = sure.encode(color=color.legend(legend), tooltip=tooltip)
    bound = bars.transform_filter("datum.bound")
    pale = bound.mark_bar(fillOpacity=0.4).encode(color=color.legend(legend), tooltip=tooltip)
    hatched = bound.mark_bar(fill=HATCH, fillOpacity=0.22, tooltip=None)
    room = "(datum.share_of_axis * width)"
    words = (
        f"{room} > {WORD} * length(datum.long) + 8 ? datum.long : "
        f"{room} > {WORD} * length(datum.short) + 6 ? datum.short : ''"
    )
    middle = alt.X("middle:Q", title="time of one step")
    label = parts.encode(x=middle, y=y, text=alt.Text(value=alt.expr(words)))
    ink = label.transform_filter("!datum.bound").mark_text(fill=alt.expr("datum.ink"))
    plain = label.transform_filter("datum.bound").mark_text(**HALO)
    rule = alt.Chart(alt.NamedData("best")).encode(x="seconds:Q")
    best = rule.mark_rule(strokeWidth=2.5).encode(y=alt.value(-4), y2=alt.value(10))
    said = rule.mark_text(
        align=alt.expr("datum.side"), dx=alt.expr("datum.shift"), dy=-3, baseline="bottom"
    ).encode(y=alt.value(0), text="words:N")
    span = alt.Chart(alt.NamedData("span")).encode(y=y, tooltip=tooltip_of("words"))
    low = alt.X("low:Q", title="time of one step")
    may_be = span.mark_rule(strokeWidth=2, yOffset=9).encode(x=low, x2="high:Q")
    ends = [
        span.mark_tick(thickness=2, size=9, yOffset=9, color="currentColor").encode(
            x=alt.X(f"{end}:Q", title="time of one step")
        )
        for end in ("low", "high")
    ]
    chart = alt.layer(pale, hatched, sure, ink, plain, may_be, *ends, best, said)
    return finished(
        chart,
        "Where the time of one step goes",
        92,
        left=106,
        top=78,
        table={"parts": {"row": "", "part": "part", "time": "time", "share": "share of the step"}},
    )


def scaling_chart() -> dict[str, Any]:
    """Speed-up against devices, log-log: prediction, the band between the bounds, ideal, points."""
    x, y = _devices(), alt.Y("speedup:Q", title="speed-up over one device")
    y = y.scale(type="log", base=2, nice=False).axis(axis_of(labelExpr=WHOLE))
    band = alt.Chart(alt.NamedData("band")).mark_area(opacity=0.18, color=LINES["predicted"][0])
    band = band.encode(x=x, y=y, y2="high:Q")
    names, styles = list(LINES), list(LINES.values())
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=-50,
        legendY=-76,
        direction="horizontal",
        columns=2,
        symbolType="stroke",
        symbolSize=400,
        symbolStrokeWidth=2,
        columnPadding=16,
        labelLimit=240,
    )
    lines = (
        alt.Chart(alt.NamedData("lines"))
        .mark_line(strokeWidth=2)
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
    chart = alt.layer(band, lines, *_points(x, y, "drop"))
    return finished(
        chart,
        "How much faster more devices are",
        250,
        left=64,
        top=88,
        bottom=44,
        table={
            "lines": {"line": "", "devices": "devices", "speedup": "speed-up"},
            "points": {"words": "point", "devices": "devices", "speedup": "speed-up"},
        },
    )


def efficiency_chart() -> dict[str, Any]:
    """Efficiency against devices: the share of the ideal speed-up that is left."""
    x = _devices()
    y = alt.Y("efficiency:Q", title="efficiency").scale(domain=[0, 1.05], nice=False)
    y = y.axis(axis_of(labelExpr=PERCENT, tickCount=5))
    band = alt.Chart(alt.NamedData("band")).mark_area(opacity=0.18, color=LINES["predicted"][0])
    band = band.encode(x=x, y=y, y2="high_efficiency:Q")
    line = alt.Chart(alt.NamedData("lines")).transform_filter("datum.line == 'predicted'")
    line = line.mark_line(strokeWidth=2, color=LINES["predicted"][0]).encode(x=x, y=y)
    ideal = alt.Chart(alt.NamedData("band")).mark_rule(strokeDash=[2, 3], opacity=0.7)
    ideal = ideal.encode(y=alt.datum(1))
    chart = alt.layer(band, ideal, line, *_points(x, y, "fall"))
    return finished(
        chart,
        "What is left of each device",
        150,
        left=64,
        top=20,
        bottom=44,
        table={"lines": {"line": "", "devices": "devices", "efficiency": "efficiency"}},
    )


def memory_chart() -> dict[str, Any]:
    """The memory ledger as a staircase up to the wall; what lies beyond is hatched."""
    x = alt.X("start:Q", title="memory of one device", axis=axis_of(labelExpr=SI.format("B")))
    x = x.scale(domainMin=0, nice=False)
    y = alt.Y("term:N", title=None, sort=alt.EncodingSortField("order", "min"))
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=160))
    terms = alt.Chart(alt.NamedData("terms"))
    steps = terms.encode(x=x, x2="stop:Q", y=y)
    color = alt.Color("term:N", legend=None).scale(domain=list(LEDGER), range=list(LEDGER.values()))
    bars = steps.mark_bar().encode(color=color, tooltip=tooltip_of("term", "size"))
    over = steps.transform_filter("datum.over > 0").encode(x="over_start:Q")
    hatched = over.mark_bar(fill=HATCH, tooltip=None)
    size = terms.mark_text(align="left", dx=5, **HALO).encode(x="stop:Q", y=y, text="size:N")
    wall = alt.Chart(alt.NamedData("wall")).encode(x="capacity:Q")
    beyond = wall.mark_rect(opacity=0.08, color="#d55e00").encode(x2="end:Q")
    rule = wall.mark_rule(strokeWidth=2.5, color="#d55e00")
    verdict = wall.mark_text(
        align=alt.expr("datum.side"), baseline="bottom", dy=-5, fontSize=13, fontWeight="bold"
    )
    verdict = verdict.encode(y=alt.value(0), text="words:N")
    chart = alt.layer(beyond, bars, hatched, rule, size, verdict)
    return finished(
        chart,
        "What one device must hold",
        220,
        left=150,
        top=26,
        right=70,
        bottom=42,
        table={"terms": {"term": "", "size": "size"}},
    )


def totals_chart() -> dict[str, Any]:
    """Time, energy and device-hours of the run against devices, relative to the present choice."""
    x = _devices()
    y = alt.Y("relative:Q", title="times what it is now").scale(type="log", base=2, nice=False)
    y = y.axis(
        axis_of(
            labelExpr="(datum.value <= 0.5 ? '1/' + format(1/datum.value, ',.2~f') : "
            "format(datum.value, ',.2~f')) + ' ×'",
            tickCount=6,
        )
    )
    names, styles = list(TOTALS), list(TOTALS.values())
    color = alt.Color("quantity:N", legend=None).scale(domain=names, range=[s[0] for s in styles])
    dash = alt.StrokeDash("quantity:N", legend=None).scale(
        domain=names, range=[s[1] for s in styles]
    )
    curve = alt.Chart(alt.NamedData("curves")).encode(x=x, y=y, color=color)
    lines = curve.mark_line(strokeWidth=2).encode(strokeDash=dash)
    dots = curve.mark_point(filled=True, size=40, opacity=0.9).encode(
        tooltip=tooltip_of("quantity", "devices", "amount")
    )
    end = alt.Chart(alt.NamedData("ends")).mark_text(align="left", dx=8)
    words = end.encode(x=x, y=alt.Y("place:Q"), text="words:N")
    now = alt.Chart(alt.NamedData("now")).encode(x="devices:Q")
    rule = now.mark_rule(strokeDash=[2, 3])
    said = now.mark_text(baseline="bottom", dy=-3).encode(y=alt.value(0), text="words:N")
    chart = alt.layer(rule, said, lines, dots, words)
    return finished(
        chart,
        "What the whole run costs",
        220,
        left=74,
        right=176,
        top=24,
        bottom=44,
        table={"curves": {"quantity": "", "devices": "devices", "amount": "amount"}},
    )


def sensitivity_chart() -> dict[str, Any]:
    """How much shorter a step gets when one part is twice as good; a half is the most there is."""
    x = alt.X("shorter:Q", title="shorter step if this were twice as good")
    x = x.scale(domain=[0, 0.5], nice=False).axis(axis_of(labelExpr=PERCENT, tickCount=5))
    y = alt.Y("part:N", title=None, sort=alt.EncodingSortField("order", "min"))
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=170))
    base = alt.Chart(alt.NamedData("parts")).encode(x=x, y=y)
    bars = base.mark_bar(color="#0072b2", clip=True).encode(tooltip=tooltip_of("part", "words"))
    text = base.mark_text(align="left", dx=5).encode(text="words:N")
    return finished(
        alt.layer(bars, text),
        "What would help most",
        200,
        left=150,
        right=60,
        top=6,
        bottom=44,
        table={"parts": {"part": "twice as good", "words": "shorter step"}},
    )


def _devices() -> alt.X:
    x = alt.X("devices:Q", title="devices").scale(type="log", base=2, nice=False)
    return x.axis(axis_of(labelExpr=WHOLE))


def _points(x: alt.X, y: alt.Y, drop: str) -> list[alt.Chart]:
    """Where the controls stand, with its words."""
    point = alt.Chart(alt.NamedData("points")).encode(x=x, y=y)
    mark = point.mark_point(
        shape="circle",
        filled=True,
        fill="#0072b2",
        size=110,
        opacity=1,
        stroke="white",
        strokeWidth=1.5,
    )
    mark = mark.encode(tooltip=tooltip_of("words", "devices"))
    words = point.mark_text(
        fontWeight="bold",
        align=alt.expr("datum.side"),
        dx=alt.expr("datum.shift"),
        dy=alt.expr(f"datum.{drop}"),
        **HALO,
    )
    return [mark, words.encode(text="words:N")]


def axis_of(**options: Any) -> alt.Axis:
    """Return an axis in the style of all drawings."""
    return alt.Axis(**{"labelFlush": False, "tickCount": 6, "titlePadding": 8, **options})


def tooltip_of(*fields: str) -> list[alt.Tooltip]:
    """Return a tooltip that shows these fields."""
    return [alt.Tooltip(field, type="nominal", title=field) for field in fields]


def finished(
    chart: Any,
    title: str,
    height: int,
    left: int,
    top: int,
    right: int = 24,
    bottom: int = 42,
    table: dict[str, dict[str, str]] | None = None,
) -> dict[str, Any]:
    """Fixed margins, so that nothing jumps while numbers change; the width comes from the page."""
    chart = chart.properties(title=title, width=600, height=height, autosize="none")
    chart = chart.properties(padding={"left": left, "top": top, "right": right, "bottom": bottom})
    chart = chart.properties(usermeta={"table": table or {}})
    spec: dict[str, Any] = chart.to_dict()
    for key in ("config", "$schema"):  # built.py has the theme and chooses the version
        spec.pop(key, None)
    return spec


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "step": step_chart,
    "scaling": scaling_chart,
    "efficiency": efficiency_chart,
    "memory": memory_chart,
    "totals": totals_chart,
    "sensitivity": sensitivity_chart,
}


def all_drawings() -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the functions that draw, by the names of their drawings, of all pages."""
    # These build on this file.
    from lib_dlhpc.explore.allreduce import drawings as allreduce_drawings
    from lib_dlhpc.explore.compare import drawings as compare_drawings
    from lib_dlhpc.explore.data_parallel import drawings as data_parallel_drawings
    from lib_dlhpc.explore.explorer import drawings as explorer_drawings
    from lib_dlhpc.explore.failures import drawings as failures_drawings
    from lib_dlhpc.explore.gantt import drawing as gantt_drawing
    from lib_dlhpc.explore.hybrid_parallel import drawings as hybrid_parallel_drawings
    from lib_dlhpc.explore.io_bottleneck import drawings as io_bottleneck_drawings
    from lib_dlhpc.explore.labs import network_lab_drawings
    from lib_dlhpc.explore.large_batch import drawings as large_batch_drawings
    from lib_dlhpc.explore.memory_wall import drawings as memory_wall_drawings
    from lib_dlhpc.explore.model_parallel import drawings as model_parallel_drawings
    from lib_dlhpc.explore.one_step import drawings as one_step_drawings
    from lib_dlhpc.explore.traces import drawings as traces_drawings

    others = (
        allreduce_drawings,
        compare_drawings,
        data_parallel_drawings,
        explorer_drawings,
        failures_drawings,
        gantt_drawing,
        hybrid_parallel_drawings,
        io_bottleneck_drawings,
        large_batch_drawings,
        memory_wall_drawings,
        model_parallel_drawings,
        network_lab_drawings,
        one_step_drawings,
        traces_drawings,
    )
    return DRAWINGS | {name: draw for room in others for name, draw in room.DRAWINGS.items()}
