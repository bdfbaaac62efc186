"""Diagrams of slides: boxes with words and arrows between them, which the office program draws as shapes of its own.

    held(("GPU 0", "GPU 1"), [Row("weights", ("all", "all")), Row("samples", ("0 to 31", "32 to 63"))])
    lanes([Lane("stage 0", [Bar(0, 1, "F0"), ...])], "time")
    linked({"a": Node(0.1, 0.5, "rank 0"), ...}, [("a", "b")])

A module has its own in diagrams.py, as DIAGRAMS: from the heading of a section, or the name of a guess, to what
computes the diagram. What is in it comes from the library: layouts, schedules, ledgers, simulations. Those without
anything computed are in diagrams.toml beside it, which `written` reads; names of diagrams.py may stand in braces:

    ["How many GPUs?"]
    columns = ["GPU 0", "GPU 1"]
    rows = [["weights", "blue", "all", "all"], ["samples", "green", "0 to {LAST}", "the others"]]
    exchange = "gradients"

    ["Who waits?"]
    lanes = [["rank 0", 0, ["computes", 2, "blue"]], ["rank 1", 2, ["receives", 1, "orange"]]]  # from 0, from 2
    axis = "time"                                           # and wall = [3, "barrier"], side = 0.14, unfolds = true

    ["Where are the files?"]
    boxes = { node = [0.2, 0.5, "node 0"], files = [0.8, 0.5, "file system", "orange", 0.3, 0.2] }
    links = [["node", "files"]]                             # and words = [[0.4, 0.1, 0.2, 0.1, "1 GB"]], both = true
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import cos, log, pi, sin
from pathlib import Path
from typing import Any, NamedTuple

from lib_dlhpc.schedules import Backward, Forward, Span
from lib_dlhpc.teaching.filled import filled

# Shares of the place: labels, headings, a line below, between.
SIDE, TITLES, CAPTION, GAP = 0.2, 0.12, 0.12, 0.012
CLICKS = 4  # to unfold a diagram, at most
FILLS = {  # pale: words on them are dark, and say what the color says
    "blue": "D6E6F0",
    "orange": "F8DCC4",
    "green": "D5EBDD",
    "violet": "E4DAF0",
    "red": "F6CFCB",
    "gray": "E6E6E6",
}
BLUE, ORANGE, GREEN, VIOLET, RED, GRAY = FILLS.values()
WHITE = "FFFFFF"
# Tints of the colors that figures have for a pass (results/palette.py).
FORWARD, BACKWARD, UPDATE = "CDE8F8", "8FC1E0", "A3BCCB"
PASSES = {Forward: FORWARD, Backward: BACKWARD}


class Shape(NamedTuple):
    """A box, or words alone where `fill` is empty. Shares of the diagram's place, from its top left corner.

    step: the click at which it appears, where a slide is shown part by part.
    """

    left: float
    top: float
    wide: float
    high: float
    text: str = ""
    fill: str = ""
    align: str = "center"
    step: int = 0


class Arrow(NamedTuple):
    """An arrow between two points; `both`: a head at either end; `plain`: none."""

    start: tuple[float, float]
    end: tuple[float, float]
    both: bool = False
    plain: bool = False


class Diagram(NamedTuple):
    """What is drawn, and what it shows in words, for those who cannot see it."""

    shapes: tuple[Shape, ...]
    arrows: tuple[Arrow, ...] = ()
    words: str = ""

    @property
    def said(self) -> str:
        """What it shows, on one line."""
        return " ".join(self.words.split())


class Row(NamedTuple):
    """What each holder has of one thing; an empty text is no cell."""

    label: str
    cells: Sequence[str]
    fill: str = BLUE


class Bar(NamedTuple):
    """A part of a lane."""

    begin: float
    end: float
    text: str = ""
    fill: str = BLUE


class Lane(NamedTuple):
    """A row in time, or an amount as a length."""

    label: str
    bars: Sequence[Bar]


class Node(NamedTuple):
    """A box around a point."""

    x: float
    y: float
    text: str
    fill: str = BLUE
    wide: float = 0.2
    high: float = 0.16


def written(names: Mapping[str, Any]) -> dict[str, Callable[[], Diagram]]:
    """Return the diagrams of the diagrams.toml beside a file. names: of the file, for what stands in braces."""
    text = Path(names["__file__"]).with_suffix(".toml").read_text("utf-8")
    return {name: partial(_read, parts, names) for name, parts in tomllib.loads(text).items()}


def _read(parts: Mapping[str, Any], names: Mapping[str, Any]) -> Diagram:
    own = _filled(parts, names)
    if "rows" in own:
        rows = [Row(label, cells, FILLS[fill]) for label, fill, *cells in own["rows"]]
        return held(own["columns"], rows, own.get("exchange", ""))
    if "lanes" in own:
        bars = [
            Lane(label, in_turn([(text, long, FILLS[fill]) for text, long, fill in parts], begin))
            for label, begin, *parts in own["lanes"]
        ]
        return lanes(
            bars, own["axis"], own.get("wall"), own.get("side", SIDE), own.get("unfolds", False)
        )
    nodes = {
        name: Node(x, y, text, *(FILLS.get(each, each) for each in more))
        for name, (x, y, text, *more) in own["boxes"].items()
    }
    words = [Shape(*each) for each in own.get("words", ())]
    return linked(nodes, own["links"], words, own.get("both", False))


def _filled(value: Any, names: Mapping[str, Any]) -> Any:
    """Return a value of a TOML file with all its texts filled in."""
    if isinstance(value, str):
        return filled(value, names)
    if isinstance(value, dict):
        return {key: _filled(each, names) for key, each in value.items()}
    return [_filled(each, names) for each in value] if isinstance(value, list) else value


def held(
    holders: Sequence[str], rows: Sequence[Row], exchange: str = "", unfolds: bool = False
) -> Diagram:
    """Return who holds what: a column for each holder, a row for each thing.

    exchange: what they send each other, below an arrow. unfolds: whether rows appear one after another.
    """
    wide = (1 - SIDE) / len(holders)
    head = TITLES * max(name.count("\n") + 1 for name in holders)
    high = (1 - head - (CAPTION if exchange else 0)) / len(rows)
    lefts = [SIDE + number * wide for number in range(len(holders))]
    shapes = [
        Shape(left, 0, wide - GAP, head, name) for left, name in zip(lefts, holders, strict=True)
    ]
    for number, row in enumerate(rows):
        top = head + number * high
        step = number if unfolds else 0
        shapes.append(Shape(0, top, SIDE - GAP, high, row.label, align="right", step=step))
        shapes += [
            Shape(left + GAP, top + GAP, wide - 3 * GAP, high - 2 * GAP, text, row.fill, step=step)
            for left, text in zip(lefts, row.cells, strict=True)
            if text
        ]
    arrows: tuple[Arrow, ...] = ()
    if exchange:
        at = 1 - CAPTION + 2 * GAP
        arrows = (Arrow((SIDE + wide / 2, at), (1 - wide / 2, at), both=True),)
        shapes.append(Shape(SIDE, at, 1 - SIDE, CAPTION - 2 * GAP, exchange))
    said = [
        f"{name}: " + ", ".join(f"{row.label} {row.cells[at]}" for row in rows if row.cells[at])
        for at, name in enumerate(holders)
    ]
    return Diagram(tuple(shapes), arrows, "; ".join([*said, *([exchange] if exchange else [])]))


def lanes(
    rows: Sequence[Lane],
    axis: str,
    wall: tuple[float, str] | None = None,
    side: float = SIDE,
    unfolds: bool = False,
) -> Diagram:
    """Return rows of bars, to one scale. axis: what runs to the right; wall: a value, and what it is.

    unfolds: whether bars appear from left to right, in CLICKS clicks at most.
    """
    at_click = _clicks(rows) if unfolds else {}
    most = max([bar.end for row in rows for bar in row.bars] + ([wall[0]] if wall else []))
    per = (1 - side - GAP) / most
    head = TITLES if wall else 0
    high = (1 - head - CAPTION) / len(rows)
    shapes, arrows = list[Shape](), [Arrow((side, 1 - CAPTION + GAP), (1, 1 - CAPTION + GAP))]
    for number, row in enumerate(rows):
        top = head + number * high
        shapes.append(Shape(0, top, side - GAP, high, row.label, align="right"))
        shapes += [
            Shape(
                side + bar.begin * per,
                top + high * 0.1,
                (bar.end - bar.begin) * per,
                high * 0.8,
                bar.text,
                bar.fill,
                step=at_click.get(bar.begin, 0),
            )
            for bar in row.bars
        ]
    shapes.append(
        Shape(side, 1 - CAPTION + 2 * GAP, 1 - side, CAPTION - 2 * GAP, axis, align="right")
    )
    if wall:
        at = side + wall[0] * per
        arrows.append(Arrow((at, TITLES), (at, 1 - CAPTION), plain=True))
        half = min(at, 1 - at) if min(at, 1 - at) > 0.2 else 0.2
        left = min(max(at - half, 0), 1 - 2 * half)
        align = "center" if left == at - half else "right"
        shapes.append(Shape(left, 0, 2 * half, TITLES, wall[1], align=align))
    said = []
    for row in rows:
        texts = ", ".join(bar.text for bar in row.bars if bar.text)
        said.append(f"{row.label}: {texts or f'{len(row.bars)} parts'}")
    said += [axis, wall[1]] if wall else [axis]
    return Diagram(tuple(shapes), tuple(arrows), "; ".join(said))


def _clicks(rows: Sequence[Lane]) -> dict[float, int]:
    """Return the click at which bars appear, by where they begin: equal parts of the time, none of them empty."""
    begins = sorted({bar.begin for row in rows for bar in row.bars})
    parts = [int(CLICKS * begin / (begins[-1] or 1)) for begin in begins]
    place = {part: number for number, part in enumerate(dict.fromkeys(parts))}
    return {begin: place[part] for begin, part in zip(begins, parts, strict=True)}


def linked(
    nodes: Mapping[str, Node],
    links: Sequence[tuple[str, str]],
    words: Sequence[Shape] = (),
    both: bool = False,
) -> Diagram:
    """Return boxes with arrows from one to another; words: other texts, in their places."""
    boxes = tuple(
        Shape(
            node.x - node.wide / 2,
            node.y - node.high / 2,
            node.wide,
            node.high,
            node.text,
            node.fill,
        )
        for node in nodes.values()
    )
    arrows = tuple(
        Arrow(_edge(nodes[one], nodes[other]), _edge(nodes[other], nodes[one]), both)
        for one, other in links
    )
    said = [f"{nodes[one].text} to {nodes[other].text}" for one, other in links]
    return Diagram((*boxes, *words), arrows, "; ".join([*said, *(word.text for word in words)]))


def circle(texts: Sequence[str], across: float = 0.62, wide: float = 0.17) -> dict[str, Node]:
    """Return boxes on a circle, from the top clockwise, by their texts."""
    around = [2 * pi * number / len(texts) for number in range(len(texts))]
    return {
        text: Node(0.5 + across / 2 * sin(angle), 0.47 - 0.38 * cos(angle), text, BLUE, wide)
        for text, angle in zip(texts, around, strict=True)
    }


def passes(spans: Sequence[Span], prefix: str = "stage", numbered: bool = True) -> list[Lane]:
    """Return a lane for each rank of a pipeline, with its passes; numbered: by their microbatches."""
    ranks = 1 + max(span.rank for span in spans)
    return [
        Lane(
            f"{prefix} {rank}",
            [
                Bar(
                    span.start,
                    span.stop,
                    f"{span.instruction.microbatch + 1}" if numbered else "",
                    PASSES[type(span.instruction)],
                )
                for span in spans
                if span.rank == rank and isinstance(span.instruction, Forward | Backward)
            ],
        )
        for rank in range(ranks)
    ]


def in_turn(parts: Iterable[tuple[str, float, str]], begin: float = 0.0) -> list[Bar]:
    """Return bars that lie end to end. parts: the text, length and fill of each."""
    bars = list[Bar]()
    for text, length, fill in parts:
        bars.append(Bar(begin, begin + length, text, fill))
        begin += length
    return bars


def across(
    texts: Iterable[str], y: float, fill: str = BLUE, wide: float = 0.2, high: float = 0.16
) -> dict[str, Node]:
    """Return four boxes beside each other, by their texts."""
    return {text: Node(0.13 + 0.247 * k, y, text, fill, wide, high) for k, text in enumerate(texts)}


def scatter(
    points: Sequence[tuple[float, float]], names: Mapping[int, str], across: str, up: str
) -> Diagram:
    """Return points on logarithmic axes without numbers. names: of some of them, by their place."""
    logs = [(log(x), log(y)) for x, y in points]
    low, high = ([end(each[axis] for each in logs) for axis in (0, 1)] for end in (min, max))
    shapes = list[Shape]()
    for number, own in enumerate(logs):
        x, y = ((own[axis] - low[axis]) / (high[axis] - low[axis]) for axis in (0, 1))
        left, top = 0.1 + 0.67 * x, 0.76 - 0.62 * y
        name = names.get(number, "")
        shapes.append(Shape(left, top, 0.02, 0.035, fill=BLUE if name else GRAY))
        if name:
            shapes.append(Shape(left + 0.025, top - 0.09, 0.2, 0.09, name, align="left"))
    shapes += [
        Shape(0.3, 0.9, 0.7, 0.1, across, align="right"),
        Shape(0, 0, 0.5, 0.1, up, align="left"),
    ]
    axes = (Arrow((0.06, 0.88), (1, 0.88)), Arrow((0.06, 0.88), (0.06, 0.1)))
    said = f"{up} against {across}: {len(points)} points, of which {', '.join(names.values())}"
    return Diagram(tuple(shapes), axes, said)


def _edge(node: Node, other: Node) -> tuple[float, float]:
    """Return where the line to another box leaves a box."""
    dx, dy = other.x - node.x, other.y - node.y
    share = min(
        node.wide / 2 / abs(dx) if abs(dx) > 1e-9 else 1.0,
        node.high / 2 / abs(dy) if abs(dy) > 1e-9 else 1.0,
    )
    return node.x + share * dx, node.y + share * dy
