"""The drawings of the lesson on traces, in Altair."""

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.traces.charts import EFFICIENCIES, IDLE, LOOKS, TERMS
from lib_dlhpc.results import palette

BLACK = "currentColor"


@drawing(
    height=200,
    left=56,
    right=20,
    top=24,
    bars={"rank": "rank", "what": "what", "start": "from (s)", "seconds": "time (s)"},
)
def traces_gantt() -> Layers:
    """What does each rank do, and when? Hatched: waits; lines: messages."""
    area, bars, over, names = _lanes("time since the start")
    lines = data("messages", x=alt.X("x:Q"), x2="x2:Q", y=kit.lane("y"), y2="y2:Q")
    mark = data("mark", x=alt.X("x:Q"), y=kit.lane("top"))
    words = mark.mark_text(align="left", baseline="bottom", dy=-1, fontWeight="bold", **HALO)
    return (
        area,
        bars,
        over,
        lines.mark_rule(strokeWidth=1, color=BLACK, opacity=0.45, clip=True),
        mark.mark_rect(fill=None, stroke=BLACK, strokeWidth=3).encode(x2="x2:Q", y2="bottom:Q"),
        words.encode(text="words:N"),
        names,
    )


@drawing(
    height=120,
    left=56,
    right=20,
    top=10,
    bars={"rank": "rank", "what": "what", "seconds": "time (s)"},
)
def traces_ranks() -> Layers:
    """Where does each rank's time go? Hatched: waits."""
    return _lanes("time of the rank")


@drawing(height=120, left=104, right=44, top=8, bars={"name": "efficiency", "value": "share"})
def traces_efficiency() -> Layers:
    """Which efficiency is the smallest? As POP defines them."""
    x = kit.x_axis("value:Q", "efficiency (1 is ideal)", kit.PERCENT, scale={"domain": [0, 1]})
    bars = data("bars", x=x, y=kit.rows_axis("name:N", domain=list(EFFICIENCIES)))
    words = bars.mark_text(align="left", dx=5, fontWeight="bold").encode(text="words:N")
    return bars.mark_bar(color=palette.SERIES[0], height=14), words


@drawing(left=118, parts={"row": "placement", "part": "term", "size": "time"})
def traces_coupled() -> Layers:
    """Which placement is the fastest? Time of the mean rank."""
    bars = kit.stacked_bars("time of the run", "s", TERMS, 170, hatch=IDLE, grid=False)
    return kit.room("x"), *bars


def _lanes(title: str) -> list[alt.Chart]:
    x = kit.x_axis("start:Q", title, SI.format("s"), grid=False, scale={"zero": False})
    return kit.lanes(x, "what:N", LOOKS, 0.6)
