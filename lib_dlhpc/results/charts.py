"""Charts of columns, in Altair: stacked bars, lines, a Gantt chart, points.

Every color is also a word: in the legend, and in the tooltip of each mark.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from lib_dlhpc.errors import SpecError
from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.results.palette import KINDS, OTHER, SERIES, TERMS

# 0.0021 reads "2.1 ms": the SI prefix goes with the unit.
SI = "replace(format(datum.value, '~s'), /([a-zA-Zµ]?)$/, ' $1') + '{}'"
PERCENT = "format(datum.value, '.3~p')"
APART = "weight gradients"  # backward passes of another color
SUFFIXES = (".html", ".svg", ".png", ".json")
Table = Mapping[str, Sequence[Any]]


def stacked_bars(columns: Table, bar: str, title: str) -> alt.Chart:
    """Return a bar for each value of column `bar`, stacked from `term` and `seconds`."""
    taken = {
        term for term, seconds in zip(columns["term"], columns["seconds"], strict=True) if seconds
    }
    names = [*(name for name in TERMS if name in taken), *sorted(taken - set(TERMS))]
    order = [names.index(name) if name in taken else 0 for name in columns["term"]]
    colors = [TERMS.get(name, OTHER) for name in names]
    chart = _chart({**columns, "order": order}, title).mark_bar()
    return chart.encode(
        x=alt.X("seconds:Q", title="time of one step", axis=_axis("s")),
        y=alt.Y(**_field(bar), title=None, sort=None).axis(labelLimit=300),
        color=alt.Color("term:N", title=None, sort=names).scale(domain=names, range=colors),
        order=alt.Order("order:Q"),
        tooltip=_tooltip(columns, bar, "term", "seconds"),
    )


def lines(columns: Table, x: str, y: str, series: str, title: str, unit: str) -> alt.Chart:
    """Return a line of `y`, in `unit`, over `x` for each value of column `series`."""
    names = list(dict.fromkeys(columns[series]))
    colors = [SERIES[at % len(SERIES)] for at in range(len(names))]
    legend = alt.Legend(title=None, labelLimit=300) if len(names) > 1 else None
    return (
        _chart(columns, title)
        .mark_line(point=True)
        .encode(
            x=alt.X(**_field(x, columns), title=x, sort=None),
            y=alt.Y(f"{y}:Q", title=y.replace("_", " "), axis=_axis(unit)),
            color=alt.Color(f"{series}:N", sort=names, legend=legend).scale(
                domain=names, range=colors
            ),
            strokeDash=alt.StrokeDash(f"{series}:N", sort=names, legend=legend).scale(domain=names),
            tooltip=_tooltip(columns),
        )
    )


def gantt(columns: Table, title: str) -> alt.Chart:
    """Return a row for each `rank`, with a lane for each `stream`, and a bar for each event.

    With a column `way` there is a chart for each of its values, one below the other, on one time axis.
    """
    rows = zip(columns["kind"], columns["name"], strict=True)
    shown = [APART if name.startswith(APART) else kind for kind, name in rows]
    names = [kind for kind in KINDS if kind in shown]
    colors = [KINDS[name] for name in names]
    chart = (
        _chart({**columns, "kind": shown}, title)
        .mark_bar(stroke="white", strokeWidth=0.4)
        .encode(
            x=alt.X("start:Q", title="time", axis=_axis("s")),
            x2="stop:Q",
            y=alt.Y("rank:O", title="rank"),
            yOffset=alt.YOffset("stream:N", sort=list(dict.fromkeys(columns["stream"]))),
            color=alt.Color("kind:N", title=None, sort=names).scale(domain=names, range=colors),
            tooltip=_tooltip(columns, "rank", "stream", "kind", "name", "start", "seconds"),
        )
    )
    if "way" not in columns:
        return chart
    ways = list(dict.fromkeys(columns["way"]))
    return chart.encode(row=alt.Row("way:N", title=None, sort=ways))


def chart_file(name: str) -> Path:
    """Return the path of a chart to write. Raises SpecError for a suffix other than SUFFIXES."""
    path = Path(name)
    if path.suffix not in SUFFIXES:
        raise SpecError(f"{name}: a chart is written to a file that ends in {', '.join(SUFFIXES)}.")
    return path


def save(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write a chart in the format of the file's suffix; HTML needs no network. Raises OSError."""
    written: Any = io.BytesIO() if path.suffix == ".png" else io.StringIO()
    suffix: Any = path.suffix[1:]
    options: dict[str, Any] = {"inline": True} if suffix == "html" else {}
    chart.save(written, format=suffix, **options)
    content = written.getvalue()
    with replacing(path) as place:
        place.write_bytes(content if isinstance(content, bytes) else content.encode())


def points(columns: Table, x: str, y: str, kind: str, title: str) -> alt.Chart:
    """Return a point for each row, at the fraction `x` in row `y`; `kind` is its color and its shape."""
    names = list(dict.fromkeys(columns[kind]))
    color = alt.Color(f"{kind}:N", sort=names)
    return (
        _chart(columns, title)
        .mark_point(size=60)
        .encode(
            x=alt.X(f"{x}:Q", axis=alt.Axis(labelExpr=PERCENT)),
            y=alt.Y(f"{y}:N", title=None, sort=None),
            color=color.scale(domain=names, range=list(SERIES[: len(names)])),
            shape=alt.Shape(f"{kind}:N", sort=names).scale(domain=names),
            tooltip=_tooltip(columns),
        )
    )


def intervals(columns: Table, name: str, title: str) -> alt.LayerChart:
    """Return the interval `low` to `high` of each row, relative to its `value`."""
    base = _chart(columns, "").transform_filter("datum.value != 0")
    base = base.transform_calculate(
        lower="datum.low / datum.value - 1", upper="datum.high / datum.value - 1", middle="0"
    )
    base = base.encode(
        y=alt.Y(f"{name}:N", title=None, sort=None).axis(labelLimit=300), tooltip=_tooltip(columns)
    )
    x = alt.X("lower:Q", title="interval over value", axis=alt.Axis(labelExpr=PERCENT))
    rule = base.mark_rule(strokeWidth=3, color=SERIES[0]).encode(x=x, x2="upper:Q")
    value = base.mark_point(filled=True, color=OTHER, size=50).encode(x="middle:Q")
    return (rule + value).properties(title=title)


def _chart(columns: Table, title: str) -> alt.Chart:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return alt.Chart(alt.Data(values=rows), title=title, width=600)


def _axis(unit: str) -> alt.Axis:
    return alt.Axis(labelExpr=SI.format(unit), tickCount=6)


def _field(name: str, columns: Table | None = None) -> dict[str, Any]:
    """Return a column as a field of Vega-Lite, in whose names a dot is a path; text without `columns`."""
    values = columns[name] if columns else [""]
    numeric = all(isinstance(value, int | float) for value in values)
    return {"field": name.replace(".", "\\."), "type": "quantitative" if numeric else "nominal"}


def _tooltip(columns: Table, *names: str) -> list[alt.Tooltip]:
    """Return a tooltip of these columns, or of all."""
    fields = {name: _field(name, columns) for name in names or columns}
    number: dict[str, dict[str, Any]] = {"quantitative": {"format": ".4~g"}, "nominal": {}}
    return [
        alt.Tooltip(**field, title=name, **number[field["type"]]) for name, field in fields.items()
    ]
