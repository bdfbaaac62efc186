"""What a drawing's specification says of its words: the legend above it, the names of lines, headings of its table."""

from collections.abc import Mapping
from typing import Any

import altair as alt

# Patterns of figure.js: beyond a wall, idle, or only a bound; in the color of words, and dark on every page.
HATCH, HATCH_ON_COLOR = "url(#dlhpc-hatch)", "url(#dlhpc-hatch-on)"
ABOVE = alt.Legend(title="above")  # for encodings that are explained above the drawing
Table = dict[str, dict[str, str]]
Looks = dict[str, dict[str, Any]]  # of values in a legend


def taken_out(spec: dict[str, Any], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Take the legends out of a specification and return them: figure.js wraps them as the page is wide."""
    found: Looks = {}
    for layer in spec["layer"]:
        for channel in ("color", "fill", "strokeDash", "shape", "fillOpacity"):
            encoding = layer.get("encoding", {}).get(channel, {})
            if encoding.get("legend") == ABOVE.to_dict():
                encoding["legend"] = None
                _add_looks(found, channel, encoding, labels)
    for label in _hatched_values(spec) & found.keys():
        found[label]["hatched"] = True
    return list(found.values())


def _add_looks(found: Looks, channel: str, encoding: Any, labels: Mapping[str, str]) -> None:
    """Add how the values of an encoding look to what is found, by value."""
    scale = encoding.get("scale") or {}
    name = {"strokeDash": "dash", "fill": "color", "fillOpacity": "opacity"}.get(channel, channel)
    for label, value in zip(*(scale.get(end, ()) for end in ("domain", "range")), strict=True):
        look = " ".join(map(str, value)) if name == "dash" else value
        found.setdefault(label, {"label": labels.get(label, label), "value": label})[name] = look


def _hatched_values(spec: Mapping[str, Any]) -> set[str]:
    """Return the values whose marks a layer of the specification hatches: the legend hatches them, too."""
    layers = [each for each in spec["layer"] if each["mark"].get("fill") in (HATCH, HATCH_ON_COLOR)]
    filters = [step.get("filter") for each in layers for step in each.get("transform", [])]
    return {value for some in filters if isinstance(some, dict) for value in some.get("oneOf", [])}


def named_lines(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return how the lines that have a name at their end look: a narrow page has the names in its legend instead."""
    layers = [at for at in spec["layer"] if at.get("data", {}).get("name") in ("lines", "ends")]
    if not any(each["data"]["name"] == "ends" for each in layers):
        return []
    found: Looks = {}
    for channel in ("color", "strokeDash", "shape"):
        for layer in layers:
            _add_looks(found, channel, layer["encoding"].get(channel, {}), {})
    return list(found.values())


def with_percent(spec: Mapping[str, Any], table: Table) -> Table:
    """Return headings, with "(%)" on columns of an axis in percent: the table then says what the axis says."""
    layers = [(_source(each, spec), each.get("encoding", {})) for each in spec["layer"]]
    sides = {
        side
        for _, encoding in layers
        for side in ("x", "y")
        if "%'" in ((encoding.get(side) or {}).get("axis") or {}).get("labelExpr", "")
    }
    shares = {
        (name, encoding.get(channel, {}).get("field"))
        for name, encoding in layers
        for side in sides
        for channel in (side, f"{side}2")
    }
    return {
        name: {
            key: f"{heading} (%)" if (name, key) in shares else heading
            for key, heading in columns.items()
        }
        for name, columns in table.items()
    }


def _source(layer: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return the name of a layer's dataset: its own, or that of all layers."""
    return str(layer.get("data", spec.get("data", {})).get("name", ""))
