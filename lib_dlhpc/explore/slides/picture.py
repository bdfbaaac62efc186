"""Pictures without a browser: a figure with its present columns and its legend, and a formula."""

import copy
import json
import math
import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from lib_dlhpc.explore.blocks.charts import apart
from lib_dlhpc.explore.blocks.drawing import HATCH, HATCH_ON_COLOR
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.front import thumbnails
from lib_dlhpc.explore.front.page import THEME
from lib_dlhpc.explore.slides.layout import width as text_width

INK, PAPER, COVER = "#222", "#fff", "#9aa"
Size = tuple[float, float]
ROW, SQUARE, WORD = 20, 14, 13  # px: a line of the legend, its squares, its type
LABEL = 12  # px: the type of axes (blocks/built.py)
SIDES = ("width", "height")  # signals that Vega has of its own
PATTERNS = "".join(
    f'<defs><pattern id="{hatch[5:-1]}" width="6" height="6" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)">'
    f'<path d="M0 0V6" stroke="{INK}" stroke-width="2.4"/></pattern></defs>'
    for hatch in (HATCH, HATCH_ON_COLOR)
)
POINTS = 28  # of a formula as it is drawn
TIGHTER = r"\!"  # a negative space, which ziamath makes too large
WORDS = f'font-size="{WORD}" fill="{INK}" font-family="sans-serif"'
BEHIND = '<text paint-order="stroke" '  # the halo of words goes behind them
TOKEN = re.compile(r"--dl-(\w+): (#\w+)")
# As in front.css.
LINES = ".line{fill:none;stroke-width:3}.limit{stroke:#b3261e;stroke-width:2;stroke-dasharray:5 4}"
# colors of the page: they are those of paper here
VARIABLE = re.compile(r"var\(--[\w-]+, *(\w+)\)")


def svg(figure: Figure, size: Size | None = None, covered: bool = False) -> str:
    """Return the figure below its legend, as an SVG document.

    size: its width and height in px, or those that it has on its page. covered: only legend, axes and a question mark.
    """
    import vl_convert

    own = filled(figure)
    key, shift = _legend(entries(figure), size[0] if size else _wide(own))
    if size:
        _fit(own, size[0], size[1] - shift)
    if covered:
        own["marks"] = [_question_mark(own)]
    drawn = vl_convert.vega_to_svg(json.loads(_on_paper(json.dumps(own))))
    drawn = drawn.replace("<text ", BEHIND)
    width, height = (float(side) for side in re.findall(r'(?:width|height)="([\d.]+)"', drawn)[:2])
    side = f'width="{width}" height="{height + shift}" viewBox="0 0 {width} {height + shift}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {side}>'
        f'{PATTERNS}<rect width="100%" height="100%" fill="{PAPER}"/>{key}'
        f'<g transform="translate(0 {shift})">{drawn}</g></svg>'
    )


def png(
    figure: Figure, size: Size | None = None, covered: bool = False, scale: float = 2.0
) -> bytes:
    """Return the figure below its legend, as a PNG file; see svg."""
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg(figure, size, covered), scale=scale))


def emblem(folder: str) -> tuple[str, str]:
    """Return the small picture of a module as an SVG document, and what it shows in words."""
    draw = getattr(thumbnails, folder)
    colors = dict(reversed(TOKEN.findall(THEME.read_text("utf-8"))))  # the first are those of paper
    drawn = re.sub(r"var\(--dl-(\w+)\)", lambda found: colors[found[1]], draw())
    size = f'xmlns="http://www.w3.org/2000/svg" width="{thumbnails.WIDTH}" height="{thumbnails.HEIGHT}" '
    ground = f'<rect width="100%" height="100%" rx="4" fill="{colors["tint"]}"/>'
    start, rest = drawn.replace("<svg ", f"<svg {size}", 1).split(">", 1)
    return f"{start}><style>{LINES}</style>{ground}{rest}", draw.__doc__


def formula(tex: str) -> tuple[str, Size]:
    """Return a formula as SVG, and its width and height in inches in type of one point; ziamath draws it."""
    import ziamath

    drawn = ziamath.Latex(tex.replace(TIGHTER, ""), size=POINTS).svg()
    wide, high = (float(side) for side in re.findall(r'(?:width|height)="([\d.]+)"', drawn)[:2])
    return drawn, (wide / 72 / POINTS, high / 72 / POINTS)


def _wide(spec: Mapping[str, Any]) -> float:
    """Return the px of a drawing from left to right."""
    return float(spec["width"] + sum(spec["padding"][side] for side in ("left", "right")))


def _fit(spec: dict[str, Any], width: float, height: float) -> None:
    """Make a drawing as wide and high as this, its margins included.

    The title of an upright axis takes two lines where it is longer than the axis.
    """
    around, before = spec["padding"], spec["height"]
    spec["height"] = height - around["top"] - around["bottom"]
    for axis in spec.get("axes", ()):
        title = axis.get("title")
        upright = axis.get("orient") == "left" and isinstance(title, str) and " " in title
        if upright and LABEL * text_width(title) > spec["height"]:
            axis["title"] = _halves(title)
            around["left"] += LABEL + 2
    spec["width"] = width - around["left"] - around["right"]
    _spread(spec)
    _close_up(spec, spec["height"] / before)


def _spread(spec: Mapping[str, Any]) -> None:
    """Move the words at the ends of lines apart: they were placed for a page, which is higher than a slide."""
    scale: dict[str, Any] = next((each for each in spec["scales"] if each["name"] == "y"), {})
    domain = scale.get("domain")
    parts = domain.get("fields", [domain]) if isinstance(domain, dict) else []
    fields = {part["field"] for part in parts if isinstance(part, dict) and "field" in part}
    if "place" not in fields:
        return
    bend, unbend = (math.log, math.exp) if scale["type"] == "log" else (float, float)
    held = [data["values"] for data in spec["data"] if isinstance(data.get("values"), list)]
    drawn = (row[field] for rows in held for row in rows for field in fields & row.keys())
    shown = [bend(own) for own in drawn if own is not None and (bend is float or own > 0)]
    for rows in held:
        ends = [row for row in rows if "place" in row]
        if ends:
            gap = ROW * 0.7 * (max(shown) - min(shown)) / spec["height"]
            moved = apart([bend(row["place"]) for row in ends], gap)
            for row, place in zip(ends, moved, strict=True):
                row["place"] = unbend(place)


def _close_up(spec: Mapping[str, Any], share: float) -> None:
    """Move names of points as the drawing shrinks; there is no room for those in brackets, of what does not fit."""
    for data in spec["data"]:
        for row in data.get("values", ()) if isinstance(data.get("values"), list) else ():
            if "dy" in row and "label" in row:
                row["dy"] *= share
                row["label"] = "" if row["label"].startswith("(") else row["label"]


def _halves(title: str) -> list[str]:
    """Return a title as two lines of about the same length."""
    words = title.split()
    cuts = range(1, len(words))
    cut = min(cuts, key=lambda at: max(len(" ".join(words[:at])), len(" ".join(words[at:]))))
    return [" ".join(words[:cut]), " ".join(words[cut:])]


def _question_mark(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mark that stands for what is covered, in the middle of a drawing."""
    middle = {"x": {"value": spec["width"] / 2}, "y": {"value": spec["height"] / 2}}
    style = {"text": {"value": "?"}, "fontSize": {"value": 96}, "fill": {"value": COVER}}
    place = {"align": {"value": "center"}, "baseline": {"value": "middle"}}
    return {"type": "text", "encode": {"enter": {**middle, **style, **place}}}


def filled(figure: Figure) -> dict[str, Any]:
    """Return the figure's drawing as a Vega specification that has the figure's columns and signals."""
    spec = copy.deepcopy(figure.spec)
    for data in spec["data"]:
        if data["name"] in figure.data:
            data["values"] = rows(figure.data[data["name"]])
    for signal in spec.get("signals", []):
        if signal["name"] in figure.signals:
            signal["value"] = figure.signals[signal["name"]]
            signal.pop("update", None)
    spec.update((name, figure.signals[name]) for name in SIDES if name in figure.signals)
    return spec


def entries(figure: Figure) -> list[dict[str, Any]]:
    """Return what the legend explains: label, color, dash, hatched; of parts of bars, those that some bar has."""
    own: list[dict[str, Any]] = figure.spec["usermeta"].get("legend") or rows(
        figure.data.get("key", {})
    )
    parts = set(figure.data.get("parts", {}).get("part", ()))
    return [each for each in own if each["label"] in parts] or own


def rows(columns: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Return columns of equal length as rows."""
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _on_paper(text: str) -> str:
    return VARIABLE.sub(PAPER, text).replace("currentColor", INK)


def _legend(found: list[dict[str, Any]], most: float) -> tuple[str, float]:
    """Return the legend, wrapped as the drawing is wide, and its height."""
    x, y, parts = 8.0, 4.0, []
    for each in found:
        label = str(each["label"])
        wide = SQUARE + 6 + WORD * text_width(label) + 18
        if x + wide > most and x > 8:
            x, y = 8.0, y + ROW
        parts += [
            _entry(each, x, y),
            f'<text x="{x + SQUARE + 6}" y="{y + 12}" {WORDS}>{escape(label)}</text>',
        ]
        x += wide
    return "".join(parts), y + ROW + 4 if parts else 0.0


def _entry(each: Mapping[str, Any], x: float, y: float) -> str:
    color = _on_paper(str(each.get("color") or INK))
    if dash := each.get("dash"):
        line = f'<path d="M{x} {y + 7}h{SQUARE + 4}" stroke="{color}" stroke-width="2.5" stroke-dasharray="{dash}"/>'
        return line
    box = f'<rect x="{x}" y="{y}" width="{SQUARE}" height="{SQUARE}" stroke="{INK}" stroke-width="0.5"'
    square = f'{box} fill="{color}" fill-opacity="{each.get("opacity", 1) or 1}"/>'
    return square + (f'{box} fill="{HATCH}" fill-opacity="0.6"/>' if each.get("hatched") else "")
