"""The drawings, written in Altair; built.py compiles them once and keeps the result.

Importing Altair takes more than a second and 65 MB, so no visitor's kernel does. Every drawing is one view of
fixed height whose width follows the page. Whatever a color says, a word, a dash or a hatching says as well.
"""

from typing import Any

import altair as alt

HATCH = (
    "url(#dlhpc-hatch)"  # a pattern that figure.js defines: what is beyond a wall, or only a bound
)

# 0.0021 reads "2.1 ms": the SI prefix goes with the unit.
SI = "replace(format(datum.value, '~s'), /([a-zA-Zµ]?)$/, ' $1') + '{}'"
WHOLE = "datum.value % 1 ? '' : format(datum.value, ',d')"  # a short axis has ticks between them
PERCENT = "format(datum.value, '.0%')"
HALO: dict[str, Any] = {
    "stroke": "var(--dl-card, Canvas)",
    "strokeWidth": 3,
}  # round words over lines
WORD = 7.0  # px, a character of the labels


def axis_of(**options: Any) -> alt.Axis:
    """Return an axis in the style of all drawings."""
    return alt.Axis(**{"labelFlush": False, "tickCount": 6, "titlePadding": 8, **options})


def tooltip_of(*fields: str) -> list[alt.Tooltip]:
    """Return a tooltip that shows these fields."""
    return [alt.Tooltip(field, type="nominal", title=field) for field in fields]


def finished(
    chart: Any,
    title: str,
    height: int,
    left: int,
    top: int,
    right: int = 24,
    bottom: int = 42,
    table: dict[str, dict[str, str]] | None = None,
) -> dict[str, Any]:
    """Fixed margins, so that nothing jumps while numbers change; the width comes from the page."""
    chart = chart.properties(title=title, width=600, height=height, autosize="none")
    chart = chart.properties(padding={"left": left, "top": top, "right": right, "bottom": bottom})
    chart = chart.properties(usermeta={"table": table or {}})
    spec: dict[str, Any] = chart.to_dict()
    for key in ("config", "$schema"):  # built.py has the theme and chooses the version
        spec.pop(key, None)
    return spec
