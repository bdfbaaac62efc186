"""The drawing of the network laboratory."""

from lib_dlhpc.explore.allreduce.charts import LINES, name_of
from lib_dlhpc.explore.blocks import drawing as kit
from lib_dlhpc.explore.blocks.drawing import SI, Layers, data, drawing
from lib_dlhpc.launch.network.crossover import ALGORITHMS

FIRST_DIGIT = "round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))"
SOME = f"indexof([1, 2, 5], {FIRST_DIGIT}) >= 0 ? {SI} : ''"  # of the ticks
COLUMNS = {"name": "", "size": "message (B)", "seconds": "measured (s)"}


@drawing(
    height=300,
    labels={name: name_of(name) for name in ALGORITHMS},
    points={**COLUMNS, "predicted": "predicted", "error": "error"},
)
def slow_network() -> Layers:
    """How long does one allreduce take?

    Symbols: measured; lines: predicted from a ping-pong; dotted: α + nβ as chosen.
    """
    x_title, wide = "message, the buffer of each rank", {"padding": 10}
    x = kit.x_axis("size:Q", x_title, SOME.format("B"), log=10, scale=wide, grid=False)
    y = kit.y_axis(
        "seconds:Q", "time of one allreduce", SOME.format("s"), log=10, scale={"padding": 6}
    )
    color, _, shape = kit.looks("algorithm:N", {name: LINES[name] for name in ALGORITHMS}, key=True)
    lines = data("lines", x=x, y=y, color=color)
    predicted = lines.transform_filter("datum.way == 'predicted'").mark_line(strokeWidth=2)
    textbook = lines.transform_filter("datum.way == 'textbook'")
    points = data("points", x=x, y=y, color=color, shape=shape).mark_point(
        filled=True, size=110, opacity=1
    )
    said = kit.tooltip_of("name", "measured", "predicted", "error")
    dotted = textbook.mark_line(strokeWidth=1.5, strokeDash=[2, 3])
    return dotted, predicted, points.encode(tooltip=said)
