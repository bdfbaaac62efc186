"""Bars whose parts lie end to end, and bars predicted beside bars measured, as columns; drawing.py draws them."""

from collections.abc import Callable, Mapping
from typing import Any

from lib_dlhpc.explore.blocks.charts import Data, State, columns, stacked
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_quantity

Rows = Mapping[str, Mapping[str, float]]  # name of a bar -> sizes of its parts
DARK = (palette.BACKWARD, palette.UPDATE, palette.EXPERTS)  # white letters on these


def stacks(
    rows: Rows,
    inks: Mapping[str, str],
    unit: str,
    longest: float = 0.0,
    words: Mapping[str, str] | None = None,
) -> Data:
    """Return the columns "parts" of bars in their order, and "sums", what stands behind each.

    inks: part -> color. longest: of the axis, if no bar is. words: behind a bar, where that is not its sum in `unit`.
    """
    wholes = {row: sum(sizes.values()) for row, sizes in rows.items()}
    most, words, parts, sums = max([longest, *wholes.values()]), words or {}, [], []
    for order, (row, sizes) in enumerate(rows.items()):
        parts += [{**part, "order": order} for part in bar(row, sizes, inks, most, unit)]
        said = words.get(row) or format_quantity(wholes[row], unit)
        sums.append({"row": row, "order": order, "stop": wholes[row], "words": said})
    return {"parts": columns(parts), "sums": columns(sums)}


def beside_measured(
    pairs: Mapping[str, tuple[float, float]], value: str, said: Callable[[float], str]
) -> State:
    """Return the columns "bars" of amounts predicted and measured, by name. value: what their column is called."""
    rows: list[dict[str, Any]] = [
        {"label": f"{name}, {what}", "what": what, value: amount, "words": said(amount)}
        for name, pair in pairs.items()
        for what, amount in zip(("predicted", "measured"), pair, strict=True)
    ]
    rows = [{**row, "order": order} for order, row in enumerate(rows)]
    words = "; ".join(f"{row['label']} {row['words']}" for row in rows)
    return {"bars": columns(rows)}, f"{words}."


def bar(
    row: str, sizes: Mapping[str, float], colors: Mapping[str, str], longest: float, unit: str
) -> list[dict[str, Any]]:
    """Return a row for each part of a bar. longest: of the axis, in the same unit."""
    whole = sum(sizes.values())
    return [
        {
            "row": row,
            "part": name,
            "start": start,
            "stop": stop,
            "middle": start + sizes[name] / 2,
            "share": f"{sizes[name] / whole:.0%}",
            "share_of_axis": sizes[name] / longest,
            "size": format_quantity(sizes[name], unit),
            "long": f"{name} {sizes[name] / whole:.0%}",
            "short": f"{sizes[name] / whole:.0%}",
            "ink": "#ffffff" if colors[name] in DARK else "#000000",
        }
        for name, start, stop in stacked(sizes)
    ]
