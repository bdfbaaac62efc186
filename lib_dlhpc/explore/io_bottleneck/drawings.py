"""The drawings of the lesson on input, in Altair."""

from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import HALO, SI, Layers, data, drawing
from lib_dlhpc.explore.io_bottleneck.charts import LINES
from lib_dlhpc.results.palette import SERIES

BLUE, RED, GREEN, PALE, GRAY = SERIES[0], SERIES[1], SERIES[2], SERIES[5], SERIES[6]
RATES = [10.0**k for k in range(10)]
BYTES = [d * 10.0**k for k in range(3, 14) for d in (1, 3)]
SHORT = "format(datum.value, '~s')"
BELOW: dict[str, Any] = {  # each chart, a table: dataset, column, heading
    "io_limits": {"bars": {"limit": "limit", "words": "samples/s"}, "demand": {"words": ""}},
    "io_reader": {"bars": {"part": "", "words": "time, share"}},
    "io_writes": {"bars": {"way": "", "words": "time, limit"}},
    "io_cache": {"lines": {"line": "", "x": "share cached", "y": "share found"}},
    "io_policies": {"bars": {"policy": "policy", "words": "hits"}},
    "io_efficiency": {"lines": {"line": "", "x": "nodes", "y": "left"}, "published": {"words": ""}},
    "io_capacity": {"line": {"x": "nodes", "y": "in each (B)"}, "wall": {"words": ""}},
    "io_volume": {"lines": {"line": "", "x": "batch", "y": "bytes"}},
    "io_measured": {"bars": {"row": "", "words": "files/s"}},
}


@drawing(height=150, left=136, right=60, top=26, **BELOW["io_limits"])
def io_limits() -> Layers:
    """How many samples per second does each limit allow?"""
    x = kit.x_axis("start:Q", "samples per second", SHORT, log=10, values=RATES)
    y = kit.rows_axis("limit:N", kit.ORDER)
    bars = data("bars")
    spans = bars.encode(x=x, x2="rate:Q", y=y)
    free, held = (spans.transform_filter(f"{no}datum.holds") for no in ("!", ""))
    line, said = kit.upright("demand")
    return (
        kit.room("x"),
        free.mark_bar(color=BLUE),
        held.mark_bar(color=RED),
        kit.hatched(held),
        line,
        kit.words_beside(bars, x=alt.X("rate:Q"), y=y),
        said,
    )


@drawing(height=120, left=100, right=60, top=12, **BELOW["io_reader"])
def io_reader() -> Layers:
    """Where does the time of a reader go?"""
    return _seconds("time of one reader for one sample", "part:N", GREEN)


@drawing(height=120, left=100, right=60, top=12, **BELOW["io_writes"])
def io_writes() -> Layers:
    """How long does it take to write a checkpoint?"""
    return _seconds("time to write the checkpoint", "way:N", BLUE)


def _seconds(title: str, rows: str, ink: str) -> Layers:
    """Bars of seconds, with their words."""
    scale = {"zero": True}
    x = kit.x_axis("seconds:Q", title, SI.format("s"), tickCount=5, scale=scale)
    bars = data("bars", x=x, y=kit.rows_axis(rows))
    return kit.room("x"), bars.mark_bar(color=ink), kit.words_beside(bars)


@drawing(height=220, left=64, right=100, **BELOW["io_cache"])
def io_cache() -> Layers:
    """How often does the policy hit?"""
    title, domain = "cached fraction of the data set", {"domain": [0, 1]}
    x = kit.x_axis("x:Q", title, kit.PERCENT, tickCount=5, grid=False, scale=domain)
    y = kit.y_axis("y:Q", "hit rate", kit.PERCENT, tickCount=5, scale={"domain": [0, 1.05]})
    return *kit.line_marks(x, y, LINES, "cached fraction", "hit rate"), *kit.point(x, y)


@drawing(height=170, left=178, top=26, **BELOW["io_policies"])
def io_policies() -> Layers:
    """Which policy hits most often?"""
    quarters, wide = [0, 0.25, 0.5, 0.75, 1], {"domain": [0, 1.18]}
    x = kit.x_axis("hit:Q", "hit rate", kit.PERCENT, values=quarters, scale=wide)
    bars = data("bars", x=x, y=kit.rows_axis("policy:N", kit.ORDER, 190))
    plain, chosen = (bars.transform_filter(f"{no}datum.chosen") for no in ("!", ""))
    line, said = kit.upright("share")
    return (
        plain.mark_bar(color=PALE),
        chosen.mark_bar(color=BLUE),
        line,
        kit.words_beside(bars),
        said,
    )


@drawing(height=220, left=64, right=130, **BELOW["io_efficiency"])
def io_efficiency() -> Layers:
    """How efficient is each node? Triangle: published, over 90%."""
    x, title = kit.by_two("nodes"), "rate of a node over one that never waits"
    y = kit.y_axis("y:Q", title, kit.PERCENT, tickCount=5, scale={"domain": [0, 1.1]})
    names = ("never waiting", "shared file system", "FanStore")
    star = kit.published(x, y, "words", shape="triangle-up", size=130)
    return kit.marker(x), *kit.line_marks(x, y, LINES, *names), star, *kit.values_beside(x, y)


@drawing(height=170, **BELOW["io_capacity"])
def io_capacity() -> Layers:
    """Does its part of the data fit into a node? Hatched: it does not fit."""
    x, y = kit.by_two("nodes"), _bytes("data in each node")
    line = data("line", x=x, y=y)
    said = data("wall", y=alt.Y("y:Q")).mark_text(
        align="right", baseline="bottom", dx=-6, dy=-4, fontWeight="bold", **HALO
    )
    return (
        kit.room("y"),
        *kit.wall(hatch=0.12, y=alt.Y("y:Q"), y2="top:Q"),
        line.mark_line(strokeWidth=2, color=BLUE, point={"size": 40, "color": BLUE}),
        said.encode(x=alt.value(alt.expr("width")), text="words:N"),
        *kit.point(x, y),
    )


@drawing(right=70, **BELOW["io_volume"])
def io_volume() -> Layers:
    """What does a device read, and what does it send?"""
    x, y = (
        kit.by_two("samples of each device in a step"),
        _bytes("moved by each device", padding=16),
    )
    return kit.marker(x), *kit.line_marks(x, y, LINES, "read", "sent"), *kit.values_beside(x, y)


@drawing(height=170, left=182, right=60, top=12, **BELOW["io_measured"])
def io_measured() -> Layers:
    """How fast is the same loader on each?"""
    x = kit.x_axis(
        "rate:Q", "files per second, all ranks", SHORT, tickCount=5, scale={"zero": True}
    )
    bars = data("bars", x=x, y=kit.rows_axis("row:N", kit.ORDER, 190))
    real, beside = (bars.transform_filter(f"datum.way {eq} 'measured'") for eq in ("==", "!="))
    return beside.mark_bar(color=GRAY), real.mark_bar(color=BLUE), kit.words_beside(bars)


def _bytes(title: str, **scale: int) -> alt.Y:
    """Return a logarithmic axis of bytes."""
    return kit.y_axis(
        "y:Q", title, SI.format("B"), log=10, values=BYTES, labelOverlap=True, scale=scale
    )
