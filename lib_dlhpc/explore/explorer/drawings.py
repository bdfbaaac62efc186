"""The explorer's drawings, in Altair: one step and one device's memory, each over that of A."""

from collections.abc import Callable
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import HALO, HATCH, SI, WORD, axis_of, finished, tooltip_of

ROWS = ["yours", "A"]
ROOM = "(datum.share_of_axis * width)"
WORDS = (
    f"{ROOM} > {WORD} * length(datum.long) + 8 ? datum.long : "
    f"{ROOM} > {WORD} * length(datum.short) + 6 ? datum.short : ''"
)


def step_chart() -> dict[str, Any]:
    """The causes of a step's time beside each other, labeled; below them those of A, pale."""
    hint = alt.Chart(alt.NamedData("hint")).mark_text(align="left", dx=6, opacity=0.75)
    hint = hint.encode(x=alt.value(0), y=_rows(), text="words:N")
    chart = alt.layer(*_bars("time of one step", "s"), *_span(), hint)
    return finished(
        chart,
        "Where the time of one step goes",
        96,
        left=46,
        top=8,
        table={"parts": {"row": "", "part": "part", "size": "time", "share": "share of the step"}},
    )


def memory_chart() -> dict[str, Any]:
    """What the fullest device holds beside each other, with its limit; below them that of A, pale."""
    wall = alt.Chart(alt.NamedData("wall")).encode(x="capacity:Q")
    beyond = wall.mark_rect(opacity=0.12, color="var(--dl-bad, #b3261e)").encode(x2="end:Q")
    rule = wall.mark_rule(strokeWidth=2.5, color="var(--dl-bad, #b3261e)")
    words = wall.mark_text(
        align=alt.expr("datum.side"), dx=alt.expr("datum.shift"), dy=-4, baseline="bottom"
    )
    bars = _bars("memory of one device", "B")
    over = alt.Chart(alt.NamedData("over")).mark_bar(fill=HATCH, fillOpacity=0.55, tooltip=None)
    over = over.encode(x="start:Q", x2="stop:Q", y=_rows())
    chart = alt.layer(beyond, *bars, over, rule, words.encode(y=alt.value(0), text="words:N"))
    return finished(
        chart,
        "What the fullest device holds",
        84,
        left=46,
        top=24,
        table={"parts": {"row": "", "part": "part", "size": "size"}},
    )


def _rows() -> alt.Y:
    y = alt.Y("row:N", title=None, sort=None)
    y = y.axis(axis_of(grid=False, ticks=False, domain=False))
    return y.scale(domain=ROWS, paddingInner=0.28, paddingOuter=0.08)


def _bars(title: str, unit: str) -> list[Any]:
    x = alt.X("start:Q", title=title).scale(domainMin=0, nice=False)
    x = x.axis(
        axis_of(labelExpr=SI.format(unit), tickCount=4 if unit == "B" else 6, labelOverlap=True)
    )
    parts = alt.Chart(alt.NamedData("parts"))
    bars = parts.encode(x=x, x2="stop:Q", y=_rows())
    plain = bars.mark_bar(
        fill=alt.expr("datum.color"),
        fillOpacity=alt.expr("datum.ghost ? 0.4 : 1"),
        stroke="var(--dl-card, Canvas)",
        strokeWidth=1,
    ).encode(tooltip=tooltip_of("part", "size", "share"))
    hatched = bars.transform_filter("datum.hatched").mark_bar(
        fill=HATCH, fillOpacity=0.4, tooltip=None
    )
    label = parts.encode(
        x=alt.X("middle:Q", title=title), y=_rows(), text=alt.Text(value=alt.expr(WORDS))
    )
    ink = label.transform_filter("!datum.ghost").mark_text(fill=alt.expr("datum.ink"))
    soft = label.transform_filter("datum.ghost").mark_text(**HALO)
    return [plain, hatched, ink, soft]


def _span() -> list[Any]:
    """Whiskers under the bar: as short and as long as the step may be."""
    span = alt.Chart(alt.NamedData("span")).encode(y=_rows(), tooltip=tooltip_of("words"))
    title = "time of one step"
    rule = span.mark_rule(strokeWidth=2, yOffset=21).encode(
        x=alt.X("low:Q", title=title), x2="high:Q"
    )
    ends = [
        span.mark_tick(thickness=2, size=8, yOffset=21, color="currentColor").encode(
            x=alt.X(f"{end}:Q", title=title)
        )
        for end in ("low", "high")
    ]
    return [rule, *ends]


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "explorer_step": step_chart,
    "explorer_memory": memory_chart,
}
