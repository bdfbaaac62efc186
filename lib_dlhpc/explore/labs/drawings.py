"""The drawing of the network laboratory, in Altair."""

from collections.abc import Callable
from typing import Any

import altair as alt

from lib_dlhpc.explore.allreduce.charts import LINES
from lib_dlhpc.explore.allreduce.drawings import FIRST_DIGIT, SECONDS
from lib_dlhpc.explore.blocks.drawings import SI, axis_of, finished, tooltip_of
from lib_dlhpc.launch.network.crossover import ALGORITHMS

BYTES = f"indexof([1, 2, 5], {FIRST_DIGIT}) >= 0 ? {SI.format('B')} : ''"
NAMES = "replace(replace(datum.label, '_', ' '), 'rab', 'Rab')"


def slow_network_chart() -> dict[str, Any]:
    """Time over message size: what was measured as symbols, lines as predicted, dotted as the textbook has it."""
    x = alt.X("size:Q", title="message, the buffer of each rank").scale(
        type="log", nice=False, padding=10
    )
    x = x.axis(axis_of(labelExpr=BYTES, tickCount=6, grid=False))
    y = alt.Y("seconds:Q", title="time of one allreduce").scale(type="log", nice=False, padding=6)
    y = y.axis(axis_of(labelExpr=SECONDS, tickCount=6))
    legend = alt.Legend(
        title=None,
        orient="none",
        legendX=0,
        legendY=-28,
        direction="horizontal",
        columnPadding=16,
        symbolSize=110,
        symbolOpacity=1,
        labelExpr=NAMES,
    )
    looks = [LINES[name] for name in ALGORITHMS]
    color = alt.Color("algorithm:N", legend=legend).scale(
        domain=list(ALGORITHMS), range=[look[0] for look in looks]
    )
    shape = alt.Shape("algorithm:N", legend=legend).scale(
        domain=list(ALGORITHMS), range=[look[2] for look in looks]
    )
    lines = alt.Chart(alt.NamedData("lines")).encode(x=x, y=y, color=color)
    predicted = lines.transform_filter("datum.way == 'predicted'").mark_line(strokeWidth=2)
    textbook = lines.transform_filter("datum.way == 'textbook'")
    textbook = textbook.mark_line(strokeWidth=1.5, strokeDash=[2, 3])
    points = alt.Chart(alt.NamedData("points")).mark_point(filled=True, size=110, opacity=1)
    points = points.encode(
        x=x,
        y=y,
        color=color,
        shape=shape,
        tooltip=tooltip_of("name", "measured", "predicted", "error"),
    )
    return finished(
        alt.layer(textbook, predicted, points),
        "Measured (symbols), predicted from a ping-pong (lines), by α + nβ as chosen (dotted)",
        300,
        left=74,
        top=56,
        bottom=44,
        table={
            "points": {
                "name": "",
                "size": "message (B)",
                "seconds": "measured (s)",
                "predicted": "predicted",
                "error": "error",
            }
        },
    )


DRAWINGS: dict[str, Callable[[], dict[str, Any]]] = {"slow_network": slow_network_chart}
