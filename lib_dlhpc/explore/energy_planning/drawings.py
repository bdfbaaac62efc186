"""The drawings of the lesson on energy and planning, in Altair."""

from collections.abc import Mapping
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.energy_planning.charts import CAUSES, LINES, PASSES, SIZES
from lib_dlhpc.explore.energy_planning.swings import AS_IT_IS, SMOOTHED
from lib_dlhpc.results.palette import SERIES

TIMES = [60 * m for m in (5, 10, 20, 30)] + [3600 * h for h in (1, 2, 4, 6, 8, 12, 16, 24, 48)]
TIME = "datum.value < 3600 ? datum.value / 60 + ' min' : datum.value / 3600 + ' h'"
ENERGIES = [1e3 * k for k in (50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 600, 800, 1000, 1500)]
WEIGHTS = [d * 10.0**k for k in (8, 9, 10) for d in (1, 2, 5)] + [1e11, 2e11]
SWINGS = {AS_IT_IS: (SERIES[6], [6, 3]), SMOOTHED: (SERIES[0], [1, 0])}
LISTED = {"words": "run", "details": "time, energy, layout"}


@drawing(height=300, left=82, top=20, marks=LISTED)
def energy_map() -> Layers:
    """How much energy, how many hours to the target? Dots: all runs that meet it."""
    return _costs(LINES)


@drawing(height=260, left=82, top=20, marks=LISTED)
def energy_plan() -> Layers:
    """Which run fits the budget? Dots: layouts; rectangle: within the budget."""
    area = data("budget", x=alt.X("left:Q"), x2="x:Q", y=alt.Y("low:Q"), y2="y:Q")
    budget = area.mark_rect(color=SERIES[2], opacity=0.13, clip=True)
    return *_costs({"front": LINES["front"]}), budget


def _costs(styles: Mapping[str, Any]) -> Layers:
    """Energy against time, both logarithmic."""
    ticks = {"labelOverlap": True, "log": 10}
    x = kit.x_axis("x:Q", "time", TIME, values=TIMES, **ticks)
    y = kit.y_axis("y:Q", "energy", SI.format("Wh"), values=ENERGIES, titlePadding=14, **ticks)
    color, dash, shape = kit.looks("line:N", styles, key=True)
    points, lines, marks = (data(name, x=x, y=y) for name in ("points", "lines", "marks"))
    symbols = kit.symbols(marks, 130, shape="diamond", color=SERIES[2])
    place: dict[str, Any] = {**kit.BESIDE, "dy": alt.expr("datum.dy"), "baseline": "middle"}
    names = marks.mark_text(fontWeight="bold", **place, **HALO)
    return (
        kit.room("x", "y"),
        points.mark_point(filled=True, size=22, opacity=0.35, color=SERIES[6]).encode(
            tooltip=kit.tooltip_of("details")
        ),
        lines.mark_line(strokeWidth=2, clip=True).encode(color=color, strokeDash=dash),
        lines.mark_point(filled=True, size=34, opacity=0.9, clip=True).encode(
            color=color, shape=shape
        ),
        symbols.encode(tooltip=kit.tooltip_of("details")),
        names.encode(text="words:N"),
        *kit.point(x, y),
    )


@kit.parts_of("run", "cause", "energy", height=112, right=76, top=8)
def energy_causes() -> Layers:
    """Where does the energy go?"""
    return kit.stacked_bars("energy to the target", "Wh", CAUSES, 70)


@drawing(
    height=240,
    left=70,
    top=24,
    passes={
        "stage": "stage",
        "kind": "pass",
        "microbatch": "microbatch",
        "start": "from (s)",
        "times": "times as long",
    },
)
def energy_slack() -> Layers:
    """Who could compute more slowly? Hatched: what a lower clock adds."""
    x = kit.x_axis("start:Q", "time in the step", SI.format("s"), grid=False)
    y = kit.lane("top")
    color = kit.colors("kind:N", PASSES, True)
    passes, tips = data("passes"), kit.tooltip_of("kind", "microbatch", "times")
    whole = passes.encode(x=x, x2="stop:Q", y=y, y2="bottom:Q")
    added = passes.encode(x=alt.X("fast:Q"), x2="stop:Q", y=y, y2="bottom:Q")
    lanes, end = data("lanes", y=alt.Y("middle:Q", axis=None)), data("end", x=alt.X("x:Q"))
    return (
        data("room", x=alt.X("x:Q"), y=alt.Y("y:Q", axis=None)).mark_point(opacity=0),
        whole.mark_rect(stroke=kit.CARD, strokeWidth=0.7).encode(color=color, tooltip=tips),
        kit.hatched(added, 0.75, "rect"),
        lanes.mark_text(align="right", dx=-8).encode(x=alt.value(0), text="words:N"),
        end.mark_rule(strokeWidth=2, strokeDash=[6, 3]),
        kit.on_top(end, align="right", fontWeight="bold"),
    )


@kit.lines_of("power", "s", "W", height=210, left=80, top=20)
def energy_swings() -> Layers:
    """What does the facility draw?"""
    x = kit.x_axis("x:Q", "time", SI.format("s"), grid=False)
    y = kit.y_axis("y:Q", "power", SI.format("W"), tickCount=5)
    color, dash = kit.inks_and_dashes("line:N", SWINGS, True)
    lines = data("lines", x=x, y=y, color=color, strokeDash=dash)
    return (
        kit.room("x", "y"),
        *kit.level("mean", y, left=True, below=True, strokeDash=[2, 3]),
        lines.mark_line(strokeWidth=2.5, interpolate="step-after", clip=True),
    )


def _weights() -> alt.X:
    """Weights of a model, logarithmic."""
    return kit.x_axis(
        "x:Q", "weights", SI.format(""), log=10, values=WEIGHTS, labelOverlap=True, grid=False
    )


@drawing(
    height=270,
    top=20,
    points={"line": "utilization", "details": "weights, tokens, loss (nats per token)"},
)
def size_loss() -> Layers:
    """Which size reaches the least loss? Hollow: beyond what was measured."""
    x = _weights()
    y = kit.y_axis(
        "y:Q", "loss, nats per token", "format(datum.value, '.2f')", scale={"zero": False}
    )
    color, dash, shape = kit.looks("line:N", SIZES, key=True)
    points, marks = (data(name, x=x, y=y) for name in ("points", "marks"))
    solid = points.transform_filter("datum.measured").mark_point(filled=True, opacity=1, clip=True)
    hollow = points.mark_point(filled=False, size=60, strokeWidth=1.8, opacity=1, clip=True)
    names = marks.mark_text(fontWeight="bold", dy=alt.expr("datum.dy"), **HALO)
    return (
        kit.room("x", "y"),
        points.mark_line(strokeWidth=2, clip=True).encode(color=color, strokeDash=dash),
        hollow.encode(color=color, shape=shape, tooltip=kit.tooltip_of("line", "details")),
        solid.encode(color=color, shape=shape, size=alt.value(60)),
        kit.symbols(marks, 150, shape="diamond").encode(
            color=color, tooltip=kit.tooltip_of("details")
        ),
        names.encode(text="words:N", color=color),
    )


@drawing(height=170, top=20, lines={"details": "MFU and fastest layout"})
def size_utilization() -> Layers:
    """Which part of the peak does each size use? Dashed: the guess."""
    x, y = _weights(), kit.y_axis("y:Q", "MFU", kit.PERCENT)
    lines = data("lines", x=x, y=y)
    return (
        kit.room("x", "y"),
        *kit.level("level"),
        lines.mark_line(strokeWidth=2, color=SERIES[0]),
        kit.symbols(lines, 50, color=SERIES[0]).encode(tooltip=kit.tooltip_of("details")),
        *kit.point(x, y),
    )
