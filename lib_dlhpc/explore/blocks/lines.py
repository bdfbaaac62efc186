"""Lines of a chart as columns: some points with symbols, the words at their ends, their values at one place.

line_drawings.py draws them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from lib_dlhpc.explore.blocks.charts import append, spread_labels

Floats = NDArray[Any]
Curves = Mapping[str, tuple[Floats, Floats]]


def line_columns(curves: Curves) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return the columns of lines with symbols on some points, and of the words at their ends."""
    lines: dict[str, list[Any]] = {n: [] for n in ("line", "x", "y", "symbol")}
    ends: dict[str, list[Any]] = {n: [] for n in ("line", "words", "x", "place")}
    for i, (words, (x, y)) in enumerate(curves.items()):
        name = words.split(",")[0]
        step = max(1, len(x) // 6)
        for k, (a, b) in enumerate(zip(x, y, strict=True)):
            append(lines, line=name, x=float(a), y=float(b), symbol=k % step == (2 * i) % step)
        if len(x):
            append(ends, line=name, words=words, x=float(x[-1]), place=float(y[-1]))
    if ends["place"]:
        ends["place"] = spread_labels(ends["place"], lines["y"])
    return lines, ends


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
