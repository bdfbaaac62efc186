"""Lines of a chart as columns: some points with symbols, the words at their ends, their values at one place.

drawing.line_marks draws them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.explore.blocks.charts import Data, columns, line_of_text, spread_labels
from lib_dlhpc.results.palette import SERIES

Curves = Mapping[str, tuple[Floats, Floats]]
# Color, dash and symbol of lines that are no causes of time: dash and symbol distinguish them without the colors.
FIRST, SECOND, THIRD, FOURTH = LOOKS = (
    (SERIES[0], [1, 0], "circle"),
    (SERIES[1], [6, 3], "square"),
    (SERIES[2], [2, 2], "triangle-up"),
    (SERIES[3], [8, 2, 2, 2], "diamond"),
)
IDEAL = (SERIES[6], [2, 3], "diamond")


def line_columns(curves: Curves) -> Data:
    """Return the columns "lines", with symbols on some points, and "ends", the words there."""
    points, ends = [], []
    for i, (words, (x, y)) in enumerate(curves.items()):
        name, step = words.split(",")[0], max(1, len(x) // 6)
        for k, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
            symbol = k % step == (2 * i) % step
            points.append({"line": name, "x": float(a), "y": float(b), "symbol": symbol})
        if len(x):
            ends.append({"line": name, "words": words, "x": float(x[-1]), "place": float(y[-1])})
    lines, words_at = columns(points), columns(ends)
    if ends:
        words_at["place"] = spread_labels(words_at["place"], lines["y"])
    return {"lines": lines, "ends": words_at}


def off_level(data: Data, level: float) -> Data:
    """Move words at ends of lines that would touch a horizontal line above it; the axis is logarithmic."""
    gap, ends = line_of_text(data["lines"]["y"]), data["ends"]
    near = [abs(np.log(place / level)) < gap for place in ends["place"]]
    above = float(level * np.exp(gap))
    ends["place"] = [above if n else p for n, p in zip(near, ends["place"], strict=True)]
    return data


def values_at(curves: Curves, now: int) -> list[tuple[str, float]]:
    """Return the value of each curve at `now`, of those that have one there."""
    found = [(name, y[x == now]) for name, (x, y) in curves.items()]
    return [(name, float(y[0])) for name, y in found if len(y)]


def value_at(curves: Curves, now: int, shown: Callable[[float], str]) -> dict[str, list[Any]]:
    """Return the columns of the points of all curves at `now` GPUs."""
    values = values_at(curves, now)
    return {
        "x": [now] * len(values),
        "y": [y for _, y in values],
        "words": [f"{name} {shown(y)}" for name, y in values],
        "dy": [-14 if i == 0 else 16 for i in range(len(values))],
    }
