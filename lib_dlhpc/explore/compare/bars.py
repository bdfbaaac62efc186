"""Bars whose parts lie end to end, each with as much of its name and share inside as there is room for."""

from collections.abc import Mapping
from typing import Any

from lib_dlhpc.explore.blocks.charts import stacked
from lib_dlhpc.results import palette
from lib_dlhpc.spec.units import format_quantity

DARK = (palette.BACKWARD, palette.UPDATE, palette.EXPERTS)  # white letters on these


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
