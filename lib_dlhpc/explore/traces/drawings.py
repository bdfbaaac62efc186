"""The drawings of the lesson on traces, in Altair."""

from collections.abc import Callable
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import (
    HALO,
    HATCH,
    PERCENT,
    SI,
    axis_of,
    finished,
    tooltip_of,
)
from lib_dlhpc.explore.traces.charts import EFFICIENCIES, LOOKS
from lib_dlhpc.results import palette

BLACK = "currentColor"
TERMS = {
    "simulate": palette.INPUT,
    "train": palette.FORWARD,
    "exchange": palette.COLLECTIVES,
    "wait for samples": palette.SERIES[4],
    "wait for room": palette.SERIES[3],
    "idle": palette.IDLE,
}


def gantt_chart() -> dict[str, Any]:
    """A lane a rank: work, calls split into waiting and the rest; messages as lines; a mark."""
    x, y = _time("start", "time since the start"), _lane("top")
    solid, hatched = _bars("bars", x, y)
    messages = alt.Chart(alt.NamedData("messages")).encode(
        x=alt.X("x:Q"), x2="x2:Q", y=_lane("y"), y2="y2:Q"
    )
    lines = messages.mark_rule(strokeWidth=1, color=BLACK, opacity=0.45, clip=True)
    mark = alt.Chart(alt.NamedData("mark")).encode(x=alt.X("x:Q"), y=_lane("top"))
    box = mark.mark_rect(fill=None, stroke=BLACK, strokeWidth=3).encode(x2="x2:Q", y2="bottom:Q")
    said = mark.mark_text(align="left", baseline="bottom", dy=-1, fontWeight="bold", **HALO)
    said = said.encode(text="words:N")
    return finished(
        alt.layer(_room(), solid, hatched, lines, box, said, _names()),
        "What does each rank do, and when? (hatched: waits; lines: messages)",
        200,
        left=56,
        right=20,
        top=74,
        bottom=44,
        table={
            "bars": {"rank": "rank", "what": "what", "start": "from (s)", "seconds": "time (s)"}
        },
    )


def ranks_chart() -> dict[str, Any]:
    """What becomes of each rank's time, stacked."""
    solid, hatched = _bars("bars", _time("start", "time of the rank"), _lane("top"))
    return finished(
        alt.layer(_room(), solid, hatched, _names()),
        "Where does each rank's time go? (hatched: waits)",
        120,
        left=56,
        right=20,
        top=74,
        bottom=44,
        table={"bars": {"rank": "rank", "what": "what", "seconds": "time (s)"}},
    )


def efficiency_chart() -> dict[str, Any]:
    """The five efficiencies of POP as bars of 0 to 1."""
    x = alt.X("value:Q", title="efficiency (1 is ideal)").scale(domain=[0, 1])
    x = x.axis(axis_of(labelExpr=PERCENT))
    y = alt.Y("name:N", title=None, sort=None).scale(domain=list(EFFICIENCIES))
    y = y.axis(axis_of(grid=False, ticks=False, domain=False))
    bars = alt.Chart(alt.NamedData("bars")).encode(x=x, y=y)
    drawn = bars.mark_bar(color=palette.SERIES[0], height=14)
    words = bars.mark_text(align="left", dx=5, fontWeight="bold").encode(text="words:N")
    return finished(
        alt.layer(drawn, words),
        "Which efficiency is the smallest? (as POP defines them)",
        120,
        left=104,
        right=44,
        top=8,
        bottom=44,
        table={"bars": {"name": "efficiency", "value": "of 1"}},
    )


def coupled_chart() -> dict[str, Any]:
    """Seconds of the mean rank by term, a bar a placement."""
    x = _time("start", "time of the run")
    y = alt.Y("way:N", title=None, sort=None).axis(axis_of(grid=False, ticks=False, domain=False))
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=-110,
        legendY=-46,
        direction="horizontal",
        columns=3,
        symbolType="square",
        columnPadding=12,
        labelLimit=0,
    )
    color = alt.Color("term:N", legend=legend)
    color = color.scale(domain=list(TERMS), range=list(TERMS.values()))
    bars = alt.Chart(alt.NamedData("bars")).encode(x=x, x2="stop:Q", y=y)
    solid = bars.mark_bar().encode(color=color, tooltip=tooltip_of("term", "seconds"))
    hatched = bars.transform_filter("datum.hatched")
    hatched = hatched.mark_bar(fill=HATCH, fillOpacity=0.5, tooltip=None)
    ends = alt.Chart(alt.NamedData("ends")).encode(x=alt.X("x:Q"), y=y)
    words = ends.mark_text(align="left", dx=5).encode(text="words:N")
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0).encode(x=alt.X("x:Q"))
    return finished(
        alt.layer(room, solid, hatched, words),
        "Which placement is the fastest? (time of the mean rank)",
        190,
        left=118,
        right=24,
        top=54,
        bottom=44,
        table={"bars": {"way": "placement", "term": "term", "seconds": "time (s)"}},
    )


def _bars(name: str, x: alt.X, y: alt.Y) -> tuple[Any, Any]:
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=-50,
        legendY=-68,
        direction="horizontal",
        columns=2,
        symbolType="square",
        columnPadding=14,
        labelLimit=0,
    )
    color = alt.Color("what:N", legend=legend)
    color = color.scale(domain=list(LOOKS), range=[look[0] for look in LOOKS.values()])
    bars = alt.Chart(alt.NamedData(name)).encode(x=x, x2="stop:Q", y=y, y2="bottom:Q")
    solid = bars.mark_rect(clip=True).encode(color=color, tooltip=tooltip_of("details"))
    hatched = bars.transform_filter("datum.hatched")
    return solid, hatched.mark_rect(fill=HATCH, fillOpacity=0.6, tooltip=None, clip=True)


def _time(field: str, title: str) -> alt.X:
    x = alt.X(f"{field}:Q", title=title).scale(nice=False, zero=False)
    return x.axis(axis_of(labelExpr=SI.format("s"), grid=False))


def _lane(field: str) -> alt.Y:
    """Return a height in lanes of ranks; every layer must say that there is no axis."""
    return alt.Y(f"{field}:Q", axis=None).scale(nice=False, reverse=True)


def _names() -> alt.Chart:
    rows = alt.Chart(alt.NamedData("rows")).encode(x=alt.value(-8), y=_lane("middle"))
    return rows.mark_text(align="right", baseline="middle").encode(text="name:N")


def _room() -> alt.Chart:
    room = alt.Chart(alt.NamedData("room")).mark_point(opacity=0)
    return room.encode(x=alt.X("x:Q"), y=_lane("y"))


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "traces_gantt": gantt_chart,
    "traces_ranks": ranks_chart,
    "traces_efficiency": efficiency_chart,
    "traces_coupled": coupled_chart,
}
