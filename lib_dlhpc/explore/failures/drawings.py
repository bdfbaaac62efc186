"""The drawings of the lesson on failures, in Altair."""

from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.blocks.lines import FIRST, SECOND
from lib_dlhpc.explore.failures.charts import CHECKED, LOST, PHASES, WAYS
from lib_dlhpc.results.palette import CHECKPOINT, ENGINE, REPEATED, SERIES

RED, BLUE = SERIES[1], SERIES[0]
# Dash and symbol distinguish them without color.
LINES = {
    "checkpoints": (CHECKPOINT, [6, 3], "square"),
    "repeated work": (REPEATED, [2, 2], "triangle-up"),
    "restarts": (SERIES[6], [1, 3], "diamond"),
    "all losses": ("currentColor", [1, 0], "circle"),
}
CHECKS = ("checks", "silent errors", "failures", "all losses")
CHECK_LINES = dict(zip(CHECKS, LINES.values(), strict=True))
SPARE_NODES = {"words": "spare nodes"}
SPARE_LINES = {"fewer replicas go on": FIRST, "all wait": SECOND}
# Seconds as people say them: a clock has no SI prefixes above its seconds.
TIME = (
    "datum.value >= 172800 ? format(datum.value / 86400, '.3~r') + ' days' : "
    "datum.value >= 7200 ? format(datum.value / 3600, '.3~r') + ' h' : "
    "datum.value >= 120 ? format(datum.value / 60, '.3~r') + ' min' : "
    "datum.value == 0 ? '0' : replace(format(datum.value, '.3~s'), /([a-zµ]?)$/, ' $1') + 's'"
)
TIMES = [*(10.0**k for k in range(-7, 2)), 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400]


def losses(interval: str, lines: dict[str, Any]) -> Layers:
    """Return shares of the time that are lost over an interval, by cause; with crosses where runs were simulated."""
    x = kit.x_axis("x:Q", interval, TIME, log=10, values=TIMES, grid=False)
    share, decades = "format(datum.value, '.2~%')", [1e-4, 1e-3, 1e-2, 0.1, 1]
    y = kit.y_axis("y:Q", "share of the time that is lost", share, log=10, values=decades)
    drawn, symbols, _ = kit.line_marks(x, y, lines)
    color, *_ = kit.looks("line:N", lines)
    ends = data("ends", x=x, y="place:Q", text="line:N", color=color)
    late = ends.transform_filter("datum.late").mark_text(align="left", dx=8)
    early = ends.transform_filter("!datum.late").mark_text(align="left", dx=8, **HALO)
    marks = data("marks", x=x)
    runs = data("simulated", x=x)
    spread = runs.mark_rule(strokeWidth=3, color=ENGINE, opacity=0.7)
    means = kit.symbols(runs, 120, shape="cross", color=ENGINE)
    now, said = kit.point(x, y)
    ring = now.mark_point(
        shape="circle", size=150, strokeWidth=2.5, color="currentColor", opacity=1
    )
    return (
        kit.room("x", "y"),
        marks.mark_rule(strokeDash=[3, 3], opacity=0.7),
        kit.on_top(marks, alt.expr("datum.dy"), align="left", dx=3),
        kit.marker(x),
        drawn.mark_line(strokeWidth=2.2, clip=True),
        symbols,
        late,
        early,
        spread.encode(y="low:Q", y2="high:Q"),
        means.encode(y=y),
        ring,
        said,
    )


LOSSES: dict[str, Any] = {"height": 270, "left": 70, "right": 128, "top": 58}
LOSSES |= {
    "lines": {"line": "", "x": "interval (s)", "y": "share of the time"},
    "marks": {"words": "best interval"},
    "simulated": {
        "x": "simulated at (s)",
        "y": "mean loss",
        "low": "10th percentile",
        "high": "90th percentile",
    },
}


@drawing(**LOSSES)
def failures_loss() -> Layers:
    """Which interval loses the least? Crosses: simulated."""
    return losses("training between two checkpoints", LINES)


@drawing(**LOSSES)
def failures_checks() -> Layers:
    """How often to look for silent errors? Crosses: simulated."""
    return losses("training between two checks", CHECK_LINES)


@kit.lines_of(
    "", "spare nodes", "goodput of all nodes", left=62, right=150, top=30, marks=SPARE_NODES
)
def failures_spares() -> Layers:
    """How many spare nodes? Goodput of all nodes, spares included."""
    x = kit.x_axis("x:Q", "spare nodes", kit.WHOLE, grid=False)
    y = kit.y_axis("y:Q", "goodput of all nodes", kit.PERCENT)
    marks = data("marks", x=x)
    return (
        kit.room("x", "y"),
        marks.mark_rule(strokeDash=[3, 3], opacity=0.7),
        kit.on_top(marks, align="left", dx=3),
        kit.marker(x),
        *kit.line_marks(x, y, SPARE_LINES),
        *kit.values_beside(x, y),
    )


def phases(looks: dict[str, Any]) -> tuple[list[alt.Chart], list[alt.Chart]]:
    """Return the bars of runs with the names of these, and where they failed."""
    ticks = alt.expr("sequence(0, 1.0001 * data('room')[1].x, data('room')[1].step)")
    x = kit.x_axis("start:Q", "time", TIME, grid=False, values=ticks)
    failed = data("strikes", x="x:Q", y=kit.lane("top"))
    bolt = failed.mark_rule(strokeWidth=2, color=RED).encode(y2="bottom:Q")
    sign = failed.mark_text(text="✕", fontWeight="bold", color=RED, dy=-5, fontSize=13)
    return kit.lanes(x, "kind:N", looks, 0.5), [bolt, sign]


PHASED: dict[str, Any] = {"height": 110, "left": 92, "top": 18}
PHASED |= {"bars": {"run": "run", "kind": "what", "start": "from (s)", "stop": "to (s)"}}


@drawing(**PHASED)
def failures_phases() -> Layers:
    """Where does the time of the run go? ✕: a failure."""
    (*bars, names), signs = phases(PHASES)
    return *bars, *signs, names


@drawing(**PHASED)
def failures_found() -> Layers:
    """When is a silent error found? ?: it strikes; ✕: a failure."""
    (*bars, names), signs = phases(CHECKED)
    wrong = data("errors", x="x:Q", y=kit.lane("top"))
    line = wrong.mark_rule(strokeWidth=2.5, strokeDash=[3, 2]).encode(y2="bottom:Q")
    sign = wrong.mark_text(text="?", fontWeight="bold", dy=-6, fontSize=14)
    return *bars, *signs, line, sign, names


@drawing(
    height=150,
    left=110,
    right=40,
    top=24,
    points={"way": "way to save", "still": "stall", "written": "durable after"},
)
def failures_costs() -> Layers:
    """How long does one checkpoint take? ■: training stalls until here; ○: durable from here on."""
    ticks: dict[str, Any] = {"values": TIMES, "labelOverlap": True, "grid": False}
    x = kit.x_axis("blocked:Q", "time after the checkpoint begins", TIME, log=10, **ticks)
    points = data("points", x=x, y=kit.rows_axis("way:N", list(WAYS), 110))
    behind = points.transform_filter("datum.split")
    durable = behind.encode(x="safe:Q")
    still = kit.symbols(points, 110, shape="square", color=BLUE)
    safe = durable.mark_point(shape="circle", size=110, strokeWidth=2.5, color=RED, opacity=1)
    above: dict[str, Any] = {"fontSize": 11, "dy": -11, **HALO}
    due = data("interval", x="x:Q")
    return (
        kit.room("x"),
        due.mark_rule(strokeWidth=2, opacity=0.6),
        kit.on_top(due, -3, align="right", dx=4),
        behind.mark_rule(strokeWidth=2, strokeDash=[4, 3]).encode(x2="safe:Q"),
        still.encode(tooltip=kit.tooltip_of("details")),
        safe.encode(tooltip=kit.tooltip_of("details")),
        points.mark_text(**above).encode(text="still:N"),
        durable.mark_text(**above).encode(text="written:N"),
    )


@drawing(
    height=170,
    left=110,
    right=180,
    bars={"way": "way to save", "part": "lost to", "share": "share of the time"},
    ends={"way": "way to save", "words": "becomes training"},
)
def failures_ways() -> Layers:
    """What does each way lose?"""
    lost = "share of the time that is lost"
    x = kit.x_axis("start:Q", lost, kit.PERCENT, tickCount=5, scale={"zero": True})
    y = kit.rows_axis("way:N", list(WAYS), 110, paddingInner=0.3)
    bars = data("bars", y=y)
    spans = bars.encode(x=x, x2="stop:Q")
    color = kit.colors("part:N", LOST, key=True)
    solid = spans.mark_bar().encode(color=color, tooltip=kit.tooltip_of("way", "part", "share"))
    wide = (
        f"(scale('x', datum.stop) - scale('x', datum.start)) > {kit.WORD} * length(datum.share) + 6"
    )
    share = alt.Text(value=alt.expr(f"{wide} ? datum.share : ''"))
    ink = alt.value(alt.expr("datum.hatched ? 'white' : 'black'"))  # repeated work is dark blue
    return (
        kit.room("x"),
        solid,
        kit.hatched(spans.transform_filter("datum.hatched")),
        bars.mark_text().encode(x="middle:Q", text=share, color=ink),
        data("ends", x="x:Q", y=y, text="words:N").mark_text(align="left", dx=6, **HALO),
    )


@drawing(height=130, top=12, bars={"version": "version", "written": "written (B)", "details": ""})
def failures_written() -> Layers:
    """How much did each version write?"""
    x = alt.X("version:N", title="version", sort=alt.EncodingSortField("order", "min"))
    x = x.axis(kit.axis_of(labelAngle=0, grid=False, labelOverlap=True))
    y = kit.y_axis("written:Q", "written", SI.format("B"), tickCount=4, scale={"zero": True})
    bars = data("bars", x=x, y=y)
    wide = alt.expr("min(30, 0.8 * width / max(1, length(data('bars'))))")
    solid = bars.mark_bar(color=BLUE, size=wide)
    whole = data("whole", y="y:Q")
    words = whole.mark_text(align="right", baseline="bottom", dx=-4, dy=-15, **HALO)
    return (
        kit.room("y"),
        solid.encode(tooltip=kit.tooltip_of("details", "label")),
        whole.mark_rule(strokeDash=[6, 3], strokeWidth=2),
        bars.mark_text(dy=-7, fontSize=11, **HALO).encode(text="label:N"),
        words.encode(x=alt.value(alt.expr("width")), text="words:N"),
    )
