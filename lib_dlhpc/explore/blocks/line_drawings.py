"""Lines of a chart in Altair, as lines.py has their columns: distinguished by dash and symbol, named at their ends."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.drawings import HALO, WHOLE, axis_of
from lib_dlhpc.results.palette import SERIES

Style = tuple[str, Sequence[int], str]  # color, dash, symbol


def line_marks(
    x: alt.X, y: alt.Y, names: Sequence[str], styles: Mapping[str, Any], interpolate: Any = "linear"
) -> list[alt.Chart]:
    """Return lines with their name where they end on the right. styles: a Style for each name."""
    color, dash, shape = scales(names, styles)
    curves = alt.Chart(alt.NamedData("lines")).encode(x=x, y=y, color=color)
    drawn = curves.mark_line(strokeWidth=2, clip=True, interpolate=interpolate)
    symbols = curves.transform_filter("datum.symbol").mark_point(filled=True, size=60, opacity=1)
    ends = alt.Chart(alt.NamedData("ends")).encode(y=alt.Y("place:Q"))
    words = ends.mark_text(align="left", dx=8).encode(x=alt.X("x:Q"), text="words:N", color=color)
    return [drawn.encode(strokeDash=dash), symbols.encode(shape=shape), words]


def scales(
    names: Sequence[str], styles: Mapping[str, Any]
) -> tuple[alt.Color, alt.StrokeDash, alt.Shape]:
    """Return the encodings of the field "line" by color, dash and symbol."""
    own = [styles[name] for name in names]
    color = alt.Color("line:N", legend=None).scale(domain=names, range=[s[0] for s in own])
    dash = alt.StrokeDash("line:N", legend=None).scale(domain=names, range=[s[1] for s in own])
    shape = alt.Shape("line:N", legend=None).scale(domain=names, range=[s[2] for s in own])
    return color, dash, shape


def by_two(title: str, ticks: int = 12, **scale: Any) -> alt.X:
    """Return a logarithmic x axis of counts: GPUs, nodes, batches."""
    x = alt.X("x:Q", title=title).scale(type="log", base=2, nice=False, **scale)
    return x.axis(axis_of(labelExpr=WHOLE, tickCount=ticks, grid=False))


def marker(x: alt.X) -> alt.Chart:
    """Return a vertical line at the present choice."""
    return alt.Chart(alt.NamedData("now")).mark_rule(strokeWidth=2, opacity=0.5).encode(x=x)


def point(x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return the present choice as a disc, with its words."""
    now = alt.Chart(alt.NamedData("now")).encode(x=x, y=y)
    look: dict[str, Any] = {"shape": "circle", "filled": True, "fill": SERIES[0], "size": 110}
    disc = now.mark_point(**look, opacity=1, stroke="white", strokeWidth=1.5)
    words = now.mark_text(
        fontWeight="bold", align=alt.expr("datum.side"), dx=alt.expr("datum.shift"), dy=-12, **HALO
    )
    return [disc, words.encode(text="words:N")]


def values_beside(x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Return the words beside each line at the present choice."""
    now = alt.Chart(alt.NamedData("now")).encode(x=x, y=y)
    words = now.mark_text(fontWeight="bold", align="right", dx=-6, dy=alt.expr("datum.dy"), **HALO)
    return [words.encode(text="words:N")]
