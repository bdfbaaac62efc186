"""What drawings are made of, in Altair: axes, marks, and a view of fixed height whose width follows the page.

    @drawing(height=190, right=130, lines={"line": "", "x": "bytes", "y": "s"})
    def message_times():
        "How long should a message be?"
        x = x_axis("x:Q", "message", SI.format("B"), log=10)
        y = y_axis("y:Q", "time", SI.format("s"), log=10)
        return marker(x), *line_marks(x, y, LINES), *values_beside(x, y)

The function's name is the drawing's; its docstring's first sentence is the title, the rest says what the marks mean, if
the legend does not. Importing Altair takes more than a second and 65 MB, so no visitor's kernel does: built.py compiles
all drawings once and keeps the result. Whatever a color says, a word, a dash or a hatching says as well.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import altair as alt

from lib_dlhpc.explore.blocks.meanings import ABOVE as ABOVE
from lib_dlhpc.explore.blocks.meanings import HATCH as HATCH
from lib_dlhpc.explore.blocks.meanings import HATCH_ON_COLOR as HATCH_ON_COLOR
from lib_dlhpc.explore.blocks.meanings import Table, named_lines, taken_out, with_percent
from lib_dlhpc.results.palette import SERIES

# 0.0021 reads "2.1 ms": the SI prefix goes with the unit.
SI = "replace(format(datum.value, '~s'), /([a-zA-Zµ]?)$/, ' $1') + '{}'"
WHOLE = "datum.value % 1 ? '' : format(datum.value, ',d')"  # a short axis has ticks between them
PERCENT = "format(datum.value, '.0%')"
CARD = "var(--dl-card, Canvas)"
HALO: dict[str, Any] = {"stroke": CARD, "strokeWidth": 3}  # round words over lines
WORD = 7.0  # px, a character of the labels
ORDER = alt.EncodingSortField("order", "min")  # of rows, for layers of one chart show them in turn
RED = SERIES[1]
INSIDE = (  # of a part of a bar (bars.py): as much as there is room for
    f"(datum.share_of_axis * width) > {WORD} * length(datum.long) + 8 ? datum.long : "
    f"(datum.share_of_axis * width) > {WORD} * length(datum.short) + 6 ? datum.short : ''"
)
BESIDE: dict[str, Any] = {"align": alt.expr("datum.side"), "dx": alt.expr("datum.shift")}
PAGES = Path(__file__).parents[1]
Layers = Iterable[alt.Chart]
Made = Callable[[Callable[[], Layers]], "Drawing"]


@dataclass(frozen=True)
class Drawing:
    """Layers with words: a title, and what the marks mean. The margins are fixed, so that nothing jumps.

    table: what the table below the chart shows: {dataset: {column: heading}}. labels: values renamed in the legend.
    """

    layers: Callable[[], Layers]
    words: str
    height: int
    margins: Mapping[str, int]
    table: Table
    labels: Mapping[str, str]

    def __call__(self) -> dict[str, Any]:
        """Return the Vega-Lite specification."""
        title, *note = re.split(r"(?<=[?.]) ", " ".join(self.words.split()), maxsplit=1)
        place = {"width": 600, "height": self.height, "autosize": "none"}
        chart = alt.layer(
            *self.layers(), title=title.rstrip("."), padding=dict(self.margins), **place
        )
        spec: dict[str, Any] = chart.to_dict()
        spec["usermeta"] = {"table": with_percent(spec, self.table)} | (
            {"note": note[0]} if note else {}
        )
        if key := taken_out(spec, self.labels):
            spec["usermeta"]["legend"] = key
        if names := named_lines(spec):
            spec["usermeta"]["ends"] = names
        for name in ("config", "$schema"):  # built.py has the theme and chooses the version
            spec.pop(name, None)
        return spec


def drawing(
    height: int = 190,
    left: int = 74,
    right: int = 24,
    top: int = 14,
    bottom: int = 44,
    labels: Mapping[str, str] | None = None,
    **table: dict[str, str],
) -> Made:
    """Make a function that returns layers a Drawing; its docstring: title, note; table: headings by dataset, column."""
    margins = {"left": left, "top": top, "right": right, "bottom": bottom}
    return lambda layers: Drawing(layers, str(layers.__doc__), height, margins, table, labels or {})


def lines_of(line: str, x: str, y: str, **look: Any) -> Made:
    """Make lines (lines.py) a Drawing; headings: what a line is, x and y. look: as of drawing."""
    return drawing(lines={"line": line, "x": x, "y": y}, **look)


def parts_of(row: str, part: str, size: str, share: str = "share", **look: Any) -> Made:
    """Make bars with shares of parts (bars.py) a Drawing; headings: what bars, parts, sizes and shares are."""
    return drawing(parts={"row": row, "part": part, "size": size, "share": share}, **look)


def drawings_of(room: ModuleType) -> dict[str, Drawing]:
    """Return the drawings of a file by name."""
    return {name: each for name, each in vars(room).items() if isinstance(each, Drawing)}


def all_drawings() -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the drawings of all pages by name."""
    files = sorted(PAGES.glob("*/drawings.py"))
    rooms = [import_module(f"lib_dlhpc.explore.{file.parent.name}.drawings") for file in files]
    return {name: each for room in rooms for name, each in drawings_of(room).items()}


def data(name: str, **encoding: Any) -> alt.Chart:
    """Return a chart of a dataset."""
    return alt.Chart(alt.NamedData(name)).encode(**encoding)


def x_axis(field: str, title: str, labels: str = "", log: float = 0, **more: Any) -> alt.X:
    """Return a horizontal axis. labels: a Vega expression; log: its base; more: as in axis_of, and `scale`."""
    return _axis(alt.X(field, title=title), labels, log, **more)


def y_axis(field: str, title: str, labels: str = "", log: float = 0, **more: Any) -> alt.Y:
    """Return a vertical axis; see x_axis."""
    return _axis(alt.Y(field, title=title), labels, log, **more)


def _axis(channel: Any, labels: str, log: float, scale: Any = None, **axis: Any) -> Any:
    kind = {"type": "log"} | ({"base": log} if log != 10 else {}) if log else {}
    labeled = {"labelExpr": labels} if labels else {}
    scaled = channel.scale(**{"nice": False, **kind, **(scale or {})})
    return scaled.axis(axis_of(**labeled, **axis))


def by_two(title: str, ticks: int = 12, **scale: Any) -> alt.X:
    """Return a logarithmic x axis of counts: GPUs, nodes, batches."""
    return x_axis("x:Q", title, WHOLE, log=2, tickCount=ticks, grid=False, scale=scale)


def rows_axis(field: str, sort: Any = None, width: int = 170, **scale: Any) -> alt.Y:
    """Return a vertical axis of named rows, without any line. width: px of the longest name."""
    y = alt.Y(field, title=None, sort=sort)
    y = y.axis(axis_of(grid=False, ticks=False, domain=False, labelLimit=width, labelPadding=6))
    return y.scale(**scale) if scale else y


def axis_of(**options: Any) -> alt.Axis:
    """Return an axis in the style of all drawings."""
    return alt.Axis(**{"labelFlush": False, "tickCount": 6, "titlePadding": 8, **options})


def colors(field: str, inks: Mapping[str, str], key: bool = False) -> alt.Color:
    """Return the encoding of a field by a color for each of its values. key: whether they are explained above."""
    scale: dict[str, Any] = {"domain": list(inks), "range": list(inks.values())}
    return alt.Color(field, legend=ABOVE if key else None).scale(**scale)


def inks_and_dashes(
    field: str, styles: Mapping[str, Any], key: bool = False
) -> tuple[alt.Color, alt.StrokeDash]:
    """Return the encodings of a field by color and dash. key: whether they are explained above."""
    inks, dashes = zip(*styles.values(), strict=True)
    dash = alt.StrokeDash(field, legend=ABOVE if key else None)
    dash = dash.scale(domain=list(styles), range=list(dashes))
    return colors(field, dict(zip(styles, inks, strict=True)), key), dash


def tooltip_of(*fields: str) -> list[alt.Tooltip]:
    """Return a tooltip that shows these fields."""
    return [alt.Tooltip(field, type="nominal", title=field) for field in fields]


def room(*axes: str) -> alt.Chart:
    """Return points nobody sees: the extent of "x", "y" or both, from the dataset "room"."""
    kinds = {"x": alt.X, "y": alt.Y}
    return data("room", **{axis: kinds[axis](f"{axis}:Q") for axis in axes}).mark_point(opacity=0)


def marker(x: alt.X) -> alt.Chart:
    """Return a vertical line at the present choice."""
    return data("now", x=x).mark_rule(strokeWidth=2, opacity=0.5)


def symbols(chart: alt.Chart, size: int, **look: Any) -> alt.Chart:
    """Return a filled symbol for each row, a disc unless `look` has another shape. size: px²."""
    return chart.mark_point(filled=True, opacity=1, size=size, **look)


def published(
    x: alt.X, y: alt.Y, *fields: str, shape: Any = "diamond", size: int = 150
) -> alt.Chart:
    """Return what was published as hollow symbols, with a tooltip of these fields."""
    marks = data("published", x=x, y=y, tooltip=tooltip_of(*fields))
    look: dict[str, Any] = {"shape": shape, "size": size, "strokeWidth": 2.5, "opacity": 1}
    return marks.mark_point(filled=False, color="currentColor", **look)


def wall(hatch: float = 0.0, **area: Any) -> list[alt.Chart]:
    """Return the dataset "wall": the area beyond it (x and x2, or y and y2), and the wall as a line, drawn last."""
    beyond = data("wall", **area)
    line = data("wall", **{side: place for side, place in area.items() if side in ("x", "y")})
    hatching = [hatched(beyond, hatch, "rect", fill=HATCH)] if hatch else []
    return [
        beyond.mark_rect(opacity=0.08, color=RED),
        *hatching,
        line.mark_rule(strokeWidth=2.5, color=RED),
    ]


def lane(field: str) -> alt.Y:
    """Return a height in lanes; every layer must say that there is no axis."""
    return alt.Y(f"{field}:Q", axis=None).scale(nice=False, reverse=True)


def lanes(x: alt.X, field: str, looks: Mapping[str, Any], hatch: float) -> list[alt.Chart]:
    """Return the extent, the bars on their lanes, the hatching, and the name of each lane. looks: the color first."""
    color = colors(field, {what: look[0] for what, look in looks.items()}, key=True)
    bars = data("bars", x=x, x2="stop:Q", y=lane("top"), y2="bottom:Q")
    names = data("rows", x=alt.value(-8), y=lane("middle"), text="name:N")
    return [
        room("x").encode(y=lane("y")),
        bars.mark_rect(clip=True).encode(color=color, tooltip=tooltip_of("details")),
        hatched(bars.transform_filter("datum.hatched"), hatch, "rect", clip=True),
        names.mark_text(align="right", baseline="middle"),
    ]


def point(x: alt.X, y: alt.Y, name: str = "now", dy: Any = -12, **look: Any) -> list[alt.Chart]:
    """Return the present choice as a disc, with its words. name: of the dataset."""
    now = data(name, x=x, y=y)
    disc = {"shape": "circle", "filled": True, "fill": SERIES[0], "size": 110, "opacity": 1}
    words = now.mark_text(fontWeight="bold", **BESIDE, dy=dy, **HALO)
    return [
        now.mark_point(**{**disc, "stroke": "white", "strokeWidth": 1.5, **look}),
        words.encode(text="words:N"),
    ]


def values_beside(x: alt.X, y: alt.Y) -> Layers:
    """Return the words beside each line at the present choice: on its left, or on its right where the axis is near."""
    near = f"scale('x', datum.x) < {WORD} * length(datum.words) + 6"
    words = data("now", x=x, y=y).mark_text(
        fontWeight="bold",
        align=alt.expr(f"{near} ? 'left' : 'right'"),
        dx=alt.expr(f"{near} ? 6 : -6"),
        dy=alt.expr("datum.dy"),
        **HALO,
    )
    return [words.encode(text="words:N")]


def level(name: str, y: Any = None, left: bool = False, below: bool = False, **look: Any) -> Layers:
    """Return horizontal lines of a dataset (y, words), with their words at the right end. look: of the line."""
    lines = data(name, y=alt.Y("y:Q") if y is None else y)
    rule = lines.mark_rule(**{"strokeDash": [6, 3], "strokeWidth": 1.5, **look})
    over: dict[str, Any] = (
        {"baseline": "top", "dy": 4} if below else {"baseline": "bottom", "dy": -3}
    )
    if left:
        words = lines.mark_text(align="left", dx=6, **over, **HALO).encode(x=alt.value(0))
    else:
        words = lines.mark_text(align="right", dx=-4, **over, **HALO)
        words = words.encode(x=alt.value(alt.expr("width")))
    return [rule, words.encode(text="words:N")]


def on_top(chart: alt.Chart, dy: Any = -4, **look: Any) -> alt.Chart:
    """Return the words of marks, above the plot."""
    return chart.mark_text(baseline="bottom", dy=dy, **look).encode(y=alt.value(0), text="words:N")


def upright(name: str, **look: Any) -> Layers:
    """Return vertical lines of a dataset (x, words, side, shift), with their words on top. look: of the line."""
    lines = data(name, x=alt.X("x:Q"))
    rule = {"strokeWidth": 2.5, "strokeDash": [6, 3], **look}
    return [lines.mark_rule(**rule), on_top(lines, **BESIDE, fontWeight="bold")]


def hatched(chart: alt.Chart, opacity: float = 0.25, mark: str = "bar", **look: Any) -> alt.Chart:
    """Return hatching over bars ("bar") or rectangles ("rect"). fill=HATCH: over what lets the page through."""
    look = {"fill": HATCH_ON_COLOR, "fillOpacity": opacity, "tooltip": None, **look}
    return getattr(chart, f"mark_{mark}")(**look)


def stacked_bars(
    title: str,
    unit: str,
    inks: Mapping[str, str],
    width: int,
    hatch: Iterable[str] = (),
    **axis: Any,
) -> list[alt.Chart]:
    """Return bars of parts (bars.stacks) with the words behind each. width: px of the longest name.

    hatch: the parts that are hatched. axis: of the sizes, as in axis_of.
    """
    x = x_axis("start:Q", title, SI.format(unit), scale={"domainMin": 0}, **axis)
    y = rows_axis("row:N", ORDER, width)
    parts = data("parts", x=x, x2="stop:Q", y=y)
    bars = parts.mark_bar(stroke=CARD, strokeWidth=1)
    bars = bars.encode(color=colors("part:N", inks, True))
    bars = bars.encode(tooltip=tooltip_of("part", "size", "share"))
    some = alt.FieldOneOfPredicate(field="part", oneOf=list(hatch))
    hatching = [hatched(parts.transform_filter(some), 0.5)] if hatch else []
    return [bars, *hatching, words_beside(data("sums"), x="stop:Q", y=y)]


def words_inside(title: str, y: alt.Y, **look: Any) -> alt.Chart:
    """Return the words in parts of bars (bars.py), as much of each as there is room for."""
    parts = data("parts", x=alt.X("middle:Q", title=title), y=y)
    return parts.mark_text(**look).encode(text=alt.Text(value=alt.expr(INSIDE)))


def words_beside(bars: alt.Chart, text: str = "words:N", **encoding: Any) -> alt.Chart:
    """Return the words to the right of each bar."""
    return bars.mark_text(align="left", dx=5, **HALO).encode(text=text, **encoding)


def line_marks(
    x: alt.X, y: alt.Y, styles: Mapping[str, Any], *names: str, interpolate: Any = "linear"
) -> Layers:
    """Return lines (see lines.py) with their name where they end on the right. styles, names: as of looks."""
    color, dash, shape = looks("line:N", styles, names=names)
    curves = data("lines", x=x, y=y, color=color)
    drawn = curves.mark_line(strokeWidth=2, clip=True, interpolate=interpolate)
    symbols = curves.transform_filter("datum.symbol").mark_point(filled=True, size=60, opacity=1)
    words = data("ends", x=alt.X("x:Q"), y=alt.Y("place:Q"), text="words:N", color=color)
    return [
        drawn.encode(strokeDash=dash),
        symbols.encode(shape=shape),
        words.mark_text(align="left", dx=8),
    ]


def looks(
    field: str, styles: Mapping[str, Any], key: bool = False, names: Iterable[str] = ()
) -> tuple[alt.Color, alt.StrokeDash, alt.Shape]:
    """Return the encodings of a field by color, dash and symbol: of these names, or of all that have a style.

    key: whether color and symbol are explained above.
    """
    own = {name: styles[name] for name in names or styles}
    parts = zip(*own.values(), strict=True)
    scales: list[dict[str, Any]] = [{"domain": list(own), "range": list(part)} for part in parts]
    ink, dash, shape = scales
    above = ABOVE if key else None
    return (
        alt.Color(field, legend=above).scale(**ink),
        alt.StrokeDash(field, legend=None).scale(**dash),
        alt.Shape(field, legend=above).scale(**shape),
    )
