"""A deck as one page of HTML: each slide as it is projected, beside what to say; arrow keys and full screen.

It needs no office program and no network. All stands where layout.py puts it, as in the file of `make slides`. What has
a data-step appears at that press of a key. With ?slides in its address, it prints slides alone, without answers.
"""

import base64
from collections.abc import Iterator
from html import escape
from pathlib import Path

from lib_dlhpc.explore.slides import layout
from lib_dlhpc.explore.slides.diagram import Diagram
from lib_dlhpc.explore.slides.picture import emblem, formula, svg
from lib_dlhpc.explore.slides.references import parts as referred
from lib_dlhpc.explore.slides.slide import RIGHT, Slide
from lib_dlhpc.explore.slides.tex import readable

STATIC = Path(__file__).parent / "static"
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Slides: {title}</title><style>{style}</style></head>
<body><header><h1>{title}</h1><button id="present">Present (F)</button>
<button id="speaker">Notes in a window (S)</button><button id="bare">Slides only, to print</button></header>
<main>{slides}</main><script>{script}</script></body></html>
"""


def page(slides: list[Slide], title: str) -> str:
    """Return the page of a deck, as HTML; raises ModuleNotFoundError without ziamath, which draws its formulas."""
    parts = [
        f'<section id="s{number}">{shown(slide, f"lib_dlhpc · {title}", number)}'
        f'<aside><h2>Slide {number}: what to say</h2><div class="notes">{linked(slide.notes)}</div></aside></section>'
        for number, slide in enumerate(slides, 1)
    ]
    style, script = ((STATIC / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return PAGE.format(title=escape(title), slides="\n".join(parts), style=style, script=script)


def shown(slide: Slide, foot: str, number: int) -> str:
    """Return a slide as HTML: its texts, its number and what it shows, each in its place."""
    parts = [text(box, slide.live, slide.vote) for box in layout.boxes(slide, foot)]
    parts.append(
        placed((layout.LEFT + layout.WIDE - 1, 6.97, 1.0, 0.36), "foot number", str(number))
    )
    if slide.emblem:
        parts.append(picture(layout.EMBLEM, *emblem(slide.emblem)))
    if slide.diagram:
        parts += diagram(slide.diagram, slide.unfolds)
    if slide.figure:
        drawn = svg(slide.figure, layout.figure_size(slide), slide.covered)
        parts.append(picture(layout.figure_place(slide), drawn, slide.described))
    elif slide.table:
        parts.append(table(layout.cells(slide)))
    elif slide.formulas:
        parts += formulas(slide)
    return f'<div class="slide">{"".join(parts)}</div>'


def linked(text: str) -> str:
    """Return a text as HTML, in which the papers that it names are links."""
    return "".join(
        f'<a href="{address}" target="_blank">{escape(part)}</a>' if address else escape(part)
        for part, address in referred(text)
    )


def placed(
    place: layout.Place, name: str, content: str, size: float = layout.SMALLEST, step: int = 0
) -> str:
    """Return a box of a slide in its place: shares of the slide, so that it scales.

    size: of its type, in points; step: the press of a key at which it appears.
    """
    left, top, wide, high = place
    sides = zip(
        ("left", "top", "width", "height"),
        (left / layout.WIDTH, top / layout.HEIGHT, wide / layout.WIDTH, high / layout.HEIGHT),
        strict=True,
    )
    style = ";".join(f"{side}:{share:.3%}" for side, share in sides)
    later = f' data-step="{step}"' if step else ""
    return f'<div class="{name}" style="{style};--pt:{size:g}"{later}>{content}</div>'


def text(box: layout.Box, live: str = "", vote: str = "") -> str:
    """Return a text in its place; live: the address of the figure that a source names, on the pages.

    vote: what the slide asks, as the board of a class names it; the foot links to it.
    """
    if box.role == "code":
        return placed(box.place, "code", f"<pre>{escape(chr(10).join(box.lines))}</pre>", box.size)
    tag = "h3" if box.role == "title" else "p"
    lines = [f"<{tag} {marked(box, line)}>{linked(line)}</{tag}>" for line in box.lines]
    if box.role == "source" and live:
        lines = [f'<p>{linked(box.lines[0])} · <a data-live="{escape(live)}" href="#">live</a></p>']
    if box.role == "foot" and vote:
        lines = [
            f'<p>{escape(box.lines[0])} · <a data-vote="{escape(vote)}" href="#">votes</a></p>'
        ]
    weight = " bold" if box.bold else ""
    return placed(box.place, box.role + weight, "".join(lines), box.size, box.step)


def marked(box: layout.Box, line: str) -> str:
    """Return the attributes of a line: an answer appears at the first press of a key, others may have a bullet."""
    if line.startswith(RIGHT):
        return 'class="answer" data-step="1"'
    return f'class="{"mark" if box.bullets and not line.endswith(":") else "plain"}"'


def picture(place: layout.Place, drawn: str, said: str, step: int = 0) -> str:
    """Return a drawing as an image, in which its names are its own, and what it shows in words."""
    data = base64.b64encode(drawn.encode()).decode()
    image = f'<img alt="{escape(said)}" src="data:image/svg+xml;base64,{data}">'
    return placed(place, "picture", image, step=step)


def diagram(own: Diagram, unfolds: bool) -> Iterator[str]:
    """Yield the boxes of a diagram, and its arrows above them; unfolds: part by part."""
    for shape, where, size in layout.drawn(own, layout.BESIDE):
        words = "<br>".join(map(escape, shape.text.split("\n")))
        name = f"shape {shape.align} {'filled' if shape.fill else ''}"
        fill = (
            f'<span style="--fill:#{shape.fill}">{words}</span>'
            if shape.fill
            else f"<span>{words}</span>"
        )
        yield placed(where, name, fill, size, unfolds * shape.step)
    yield picture(layout.BESIDE, arrows(own), own.said)


def arrows(own: Diagram) -> str:
    """Return the lines of a diagram as SVG, in points."""
    wide, high = (72 * side for side in layout.BESIDE[2:])
    lines = []
    for each in own.arrows:
        (x1, y1), (x2, y2) = ((x * wide, y * high) for x, y in (each.start, each.end))
        heads = "" if each.plain else ' marker-end="url(#head)"'
        heads += ' marker-start="url(#head)"' if each.both else ""
        lines.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"{heads}/>')
    head = (
        '<marker id="head" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="5" markerHeight="5"'
        ' orient="auto-start-reverse"><path d="M0 0L6 3L0 6Z" fill="#222" stroke="none"/></marker>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.1f} {high:.1f}">'
        f'<defs>{head}</defs><g stroke="#222" stroke-width="1.75" fill="none">{"".join(lines)}</g></svg>'
    )


def table(cells: layout.Cells) -> str:
    """Return a table in its place, its heading first."""
    shares = "".join(f'<col style="width:{own / sum(cells.columns):.2%}">' for own in cells.columns)
    rows = []
    for down, (texts, high) in enumerate(zip(cells.texts, cells.rows, strict=True)):
        tag = "td" if down else "th"
        own = "".join(f"<{tag}>{escape(each)}</{tag}>" for each in texts)
        rows.append(f'<tr style="height:{high / sum(cells.rows):.2%}">{own}</tr>')
    return placed(cells.place, "cells", f"<table>{shares}{''.join(rows)}</table>", cells.size)


def formulas(slide: Slide) -> Iterator[str]:
    """Yield the formulas of a slide in their places, with what they say in words."""
    drawn = [formula(tex) for tex in slide.formulas]
    places = layout.formula_places(slide, [size for _, size in drawn])
    for at, (tex, (own, _), place) in enumerate(zip(slide.formulas, drawn, places, strict=True)):
        yield picture(place, own, readable(tex), slide.stepwise * at)
