"""The explorer's drawings: one step and one device's memory, each over that of A; and charts over devices."""

from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import BESIDE, HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.explorer.device_charts import LINES, TOTALS
from lib_dlhpc.results import palette

FROM_0 = {"domainMin": 0}
POINTS = {"words": "point", "devices": "devices"}
BAD = "var(--dl-bad, #b3261e)"
TIMES = (
    "(datum.value <= 0.5 ? '1/' + format(1/datum.value, ',.2~f') : format(datum.value, ',.2~f'))"
    " + ' ×'"
)


@kit.parts_of("", "part", "time", "share of the step", height=80, left=46, top=8, bottom=42)
def explorer_step() -> Layers:
    """Where the time of one step goes."""
    hint = data("hint").mark_text(align="left", dx=6, opacity=0.75)
    hint = hint.encode(x=alt.value(0), y=_rows(), text="words:N")
    return *_bars("time of one step", "s", 6), *_span(), hint


@drawing(height=84, left=46, top=24, bottom=42, parts={"row": "", "part": "part", "size": "size"})
def explorer_memory() -> Layers:
    """What the fullest device holds."""
    wall = data("wall", x="capacity:Q")
    beyond = wall.mark_rect(opacity=0.12, color=BAD).encode(x2="end:Q")
    rule = wall.mark_rule(strokeWidth=2.5, color=BAD)
    over = kit.hatched(data("over", x="start:Q", x2="stop:Q", y=_rows()), 0.55)
    bars = _bars("memory of one device", "B", 4)
    return beyond, *bars, over, rule, kit.on_top(wall, **BESIDE)


def _rows() -> alt.Y:
    return kit.rows_axis("row:N", domain=["yours", "A"], paddingInner=0.28, paddingOuter=0.08)


def _bars(title: str, unit: str, ticks: int) -> list[Any]:
    x = kit.x_axis(
        "start:Q", title, SI.format(unit), tickCount=ticks, labelOverlap=True, scale=FROM_0
    )
    bars = data("parts", x=x, x2="stop:Q", y=_rows())
    fill: Any = {"fill": alt.expr("datum.color"), "fillOpacity": alt.expr("datum.ghost ? 0.4 : 1")}
    plain = bars.mark_bar(**fill, stroke=kit.CARD, strokeWidth=1)
    ink = kit.words_inside(title, _rows(), fill=alt.expr("datum.ink"))
    ink = ink.transform_filter("!datum.ghost")
    soft = kit.words_inside(title, _rows(), **HALO).transform_filter("datum.ghost")
    shown = plain.encode(tooltip=kit.tooltip_of("part", "size", "share"))
    return [shown, kit.hatched(bars.transform_filter("datum.hatched"), 0.4), ink, soft]


def _span() -> list[Any]:
    """Whiskers under the bar: as short and as long as the step may be."""
    span = data("span", y=_rows(), tooltip=kit.tooltip_of("words"))
    low, high = (alt.X(f"{end}:Q", title="time of one step") for end in ("low", "high"))
    tick = span.mark_tick(thickness=2, size=8, yOffset=18, color="currentColor")
    rule = span.mark_rule(strokeWidth=2, yOffset=18).encode(x=low, x2="high:Q")
    return [rule, tick.encode(x=low), tick.encode(x=high)]


@drawing(
    height=250,
    left=64,
    lines={"line": "", "devices": "devices", "speedup": "speedup"},
    points={**POINTS, "speedup": "speedup"},
)
def scaling() -> Layers:
    """How much faster more devices are."""
    x, y = _devices(), kit.y_axis("speedup:Q", "speedup over one device", kit.WHOLE, log=2)
    band = data("band", x=x, y=y, y2="high:Q").mark_area(opacity=0.18, color=palette.SERIES[0])
    color, dash = kit.inks_and_dashes("line:N", LINES, True)
    lines = data("lines", x=x, y=y, color=color, strokeDash=dash).mark_line(strokeWidth=2)
    return band, lines, *_points(x, y, "drop")


@drawing(
    height=150,
    left=64,
    top=20,
    lines={"line": "", "devices": "devices", "efficiency": "efficiency"},
)
def efficiency() -> Layers:
    """How efficient each device is."""
    x = _devices()
    y = kit.y_axis(
        "efficiency:Q", "efficiency", kit.PERCENT, tickCount=5, scale={"domain": [0, 1.05]}
    )
    band = data("band", x=x, y=y, y2="high_efficiency:Q")
    line = data("lines", x=x, y=y).transform_filter("datum.line == 'predicted'")
    ideal = data("band", y=alt.datum(1)).mark_rule(strokeDash=[2, 3], opacity=0.7)
    return (
        band.mark_area(opacity=0.18, color=palette.SERIES[0]),
        ideal,
        line.mark_line(strokeWidth=2, color=palette.SERIES[0]),
        *_points(x, y, "fall"),
    )


@drawing(
    height=220, right=176, top=24, curves={"quantity": "", "devices": "devices", "amount": "amount"}
)
def totals() -> Layers:
    """What the whole run costs."""
    x, y = _devices(), kit.y_axis("relative:Q", "times what it is now", TIMES, log=2)
    color, dash = kit.inks_and_dashes("quantity:N", TOTALS)
    curve = data("curves", x=x, y=y, color=color)
    dots = curve.mark_point(filled=True, size=40, opacity=0.9)
    end = data("ends", x=x, y=alt.Y("place:Q"), text="words:N").mark_text(align="left", dx=8)
    now = data("now", x="devices:Q")
    return (
        now.mark_rule(strokeDash=[2, 3]),
        kit.on_top(now, -3),
        curve.mark_line(strokeWidth=2).encode(strokeDash=dash),
        dots.encode(tooltip=kit.tooltip_of("quantity", "devices", "amount")),
        end,
    )


@drawing(
    height=200, left=150, right=60, top=6, parts={"part": "twice as good", "words": "shorter step"}
)
def sensitivity() -> Layers:
    """What would help most."""
    title, most = "shorter step if this were twice as good", {"domain": [0, 0.5]}
    x = kit.x_axis("shorter:Q", title, kit.PERCENT, tickCount=5, scale=most)
    y = kit.rows_axis("part:N", kit.ORDER)
    base = data("parts", x=x, y=y)
    bars = base.mark_bar(color=palette.SERIES[0], clip=True)
    text = base.mark_text(align="left", dx=5).encode(text="words:N")
    return bars.encode(tooltip=kit.tooltip_of("part", "words")), text


def _devices() -> alt.X:
    return kit.x_axis("devices:Q", "devices", kit.WHOLE, log=2)


def _points(x: alt.X, y: alt.Y, drop: str) -> list[alt.Chart]:
    """Where the controls stand, with its words."""
    disc, words = kit.point(x, y, "points", alt.expr(f"datum.{drop}"))
    return [disc.encode(tooltip=kit.tooltip_of("words", "devices")), words]
