"""Where the texts of a slide stand and how large they are: each fits its box, estimated with the widths of Arial.

Numbers are inches, sizes of type are points. A slide has a line that says what it is for, a title of at most two lines,
one thing below it, a source, and a foot. A text that does not fit at the smallest size is refused, not cut.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.slides.diagram import Diagram, Shape
from lib_dlhpc.explore.slides.slide import CHECK, CODE, EARLIER, OPENING, PREDICT, Slide

WIDTH, HEIGHT = 13.333, 7.5
LEFT, TOP, WIDE, END = 0.6, 1.72, 12.1, 6.55  # what a slide shows is between TOP and END
SMALLEST, IN_TABLES, PARAGRAPH, LINE = 14, 12, 0.45, 1.2  # pt, pt, and parts of the size
INSET = (0.1, 0.05)  # of a text in its box, on each side
TIGHT = 0.03  # in: on each side of a text in a box of a diagram
BULLET, MARGIN = 0.3, 0.2  # in: the indent of a bullet; of the text in a cell, both sides together
FIGURE = (LEFT, TOP, WIDE, 4.14)  # left, top, width, height
RESULT_BELOW = (LEFT, 5.88, WIDE, 0.72)  # what a figure shows: two lines of 18 points
BESIDE = (5.5, TOP, 7.2, 4.75)
# The width of a figure: its labels, 12 px high, have 16 points and more.
FIGURE_PX, BESIDE_PX = 640, 380
EMBLEM = (8.6, 2.6, 4.1, 1.64)  # of the first slide, beside its lines
HALF = 5.9  # the width of each of two questions
COLUMN = BESIDE[0] - LEFT - 0.2  # the width of a text beside a figure
TASK = 3.6  # where a task below code begins
FORMULAS = 2.2  # the height of formulas, at least
FORMULA, STEP = 40, 26  # pt: of a formula at most, on its own and in a derivation
APART = 0.15  # in: between formulas
REASON, ROWS = 7.6, 4.1  # where the reasons of a derivation begin, and the height of its lines
NARROW = {0.22: "'ijl", 0.28: " !,./:;I[]\\ft|·", 0.35: '"()-`r{}°', 0.39: "*", 0.5: "Jcksvxyz"}
BROAD = {
    0.67: "&ABEFKPSTVXYZ",
    0.73: "CDHNRUw",
    0.78: "GOQ",
    0.84: "Mm",
    0.95: "W%",
    1.02: "@…→←↔≈≤≥✓",
}
WIDTHS = {sign: em for em, signs in (NARROW | BROAD).items() for sign in signs}
MONO = 0.61  # em, of Courier New
USUAL, BOLD = 0.6, 1.08  # em, a letter or a digit at most; how much wider bold type is


Place = tuple[float, float, float, float]  # left, top, width, height


class Box(NamedTuple):
    """A text in its place. role: title, kind, body, code, reason, source, foot; bullets: before each of its lines.

    step: the click at which it appears.
    """

    place: Place
    lines: tuple[str, ...]
    size: int
    role: str = "body"
    bold: bool = False
    bullets: bool = False
    step: int = 0


class Cells(NamedTuple):
    """A table in its place: its rows of texts, the widths of its columns, the heights of its rows."""

    texts: tuple[tuple[str, ...], ...]
    place: Place
    columns: tuple[float, ...]
    rows: tuple[float, ...]
    size: int


def boxes(slide: Slide, foot: str) -> list[Box]:
    """Return the texts of a slide; raises SpecError for one that does not fit."""
    optional = "optional" if slide.optional else ""
    head = " · ".join(filter(None, (slide.kind.upper(), slide.section, optional)))
    found = [
        _title(slide),
        *([fitted((head,), (LEFT, 0.18, WIDE, 0.36), SMALLEST, "kind", bold=True)] if head else []),
        *_main(slide),
        *(
            [fitted((slide.source,), (LEFT, 6.61, WIDE, 0.34), SMALLEST, "source")]
            if slide.source
            else []
        ),
        fitted((foot,), (LEFT, 6.97, 10.0, 0.36), SMALLEST, "foot"),
    ]
    return found


def _title(slide: Slide) -> Box:
    """Return the title, which is larger on the first slide."""
    place, size = (
        ((LEFT, 0.6, WIDE, 1.6), 44) if slide.kind == OPENING else ((LEFT, 0.54, WIDE, 1.1), 30)
    )
    return fitted((slide.title,), place, size, "title", bold=True)


def _main(slide: Slide) -> list[Box]:
    """Return what stands between the title and the source."""
    lines, marked = slide.lines, slide.kind not in (PREDICT, CHECK, EARLIER)
    if slide.stepwise:
        return _reasons(slide)
    if slide.emblem:
        return _opened(slide)
    if slide.kind == CODE:
        end = TASK if slide.aside else END
        code = fitted(lines, (LEFT, TOP, WIDE, end - TOP), 20, "code")
        task = (LEFT, TASK, WIDE, END - TASK)
        return [code, *([fitted(slide.aside, task, 24, bullets=True)] if slide.aside else [])]
    if slide.table:
        return [fitted(lines, (LEFT, TOP, WIDE, above(lines)), 18)] if lines else []
    if slide.formulas:
        left, top, wide, high = board(slide)
        below = top + high + 0.1
        return [fitted(lines, (left, below, wide, END - below), 22, bullets=True)] if lines else []
    if slide.figure and slide.kind != PREDICT:
        return [fitted(lines, RESULT_BELOW, 22, "result")] if lines else []
    if slide.kind == EARLIER:
        return _two(slide)
    if slide.diagram and slide.aside:
        return _merged(slide)
    if slide.figure or slide.aside or slide.diagram:
        bullets = marked and bool(slide.diagram)
        own = [fitted(lines, (LEFT, TOP, COLUMN, END - TOP), 24, bullets=bullets)]
        return [*own, fitted(slide.aside, BESIDE, 26, "aside")] if slide.aside else own
    top = TOP + 0.75 if slide.kind == OPENING else TOP
    return [fitted(lines, (LEFT, top, WIDE, END - top), 30, bullets=marked)]


def _opened(slide: Slide) -> list[Box]:
    """Return the lines of the first slide, and what its small picture shows below that."""
    left, up, wide, high = EMBLEM
    top = TOP + 0.75
    return [
        fitted(slide.lines, (LEFT, top, left - LEFT - 0.2, END - top), 30, bullets=True),
        fitted(slide.aside, (left, up + high + 0.1, wide, 1.6), 18, "result"),
    ]


def _merged(slide: Slide) -> list[Box]:
    """Return an idea beside its diagram, and below it what a question says."""
    idea = fitted(slide.aside, (LEFT, TOP, COLUMN, 2.0), 24, "aside")
    high = height(slide.aside, COLUMN - 2 * INSET[0], idea.size) + 2 * INSET[1]
    top = TOP + high + 0.2
    return [
        idea._replace(place=(LEFT, TOP, COLUMN, high)),
        fitted(slide.lines, (LEFT, top, COLUMN, END - top), 24),
    ]


def _two(slide: Slide) -> list[Box]:
    """Return two questions beside each other, in one size."""
    places = [(left, TOP, HALF, END - TOP) for left in (LEFT, LEFT + WIDE - HALF)]
    texts = [each for each in (slide.lines, slide.aside) if each]
    found = [fitted(text, place, 26) for text, place in zip(texts, places, strict=False)]
    size = min(box.size for box in found)
    return [box._replace(size=size) for box in found]


def figure_place(slide: Slide) -> Place:
    """Return the place of a slide's figure."""
    return BESIDE if slide.kind == PREDICT else FIGURE


def figure_size(slide: Slide) -> tuple[float, float]:
    """Return the width and height in px in which a slide's figure is drawn, for its place."""
    _, _, wide, high = figure_place(slide)
    px = BESIDE_PX if slide.kind == PREDICT else FIGURE_PX
    return px, px * high / wide


def drawn(diagram: Diagram, place: Place) -> list[tuple[Shape, Place, int]]:
    """Return the boxes of a diagram in a place, and the size of their type, which all share.

    Raises SpecError where a text does not fit its box in the smallest type.
    """
    left, top, wide, high = place
    found = [
        (own, (left + own.left * wide, top + own.top * high, own.wide * wide, own.high * high))
        for own in diagram.shapes
    ]
    for size in range(20, SMALLEST - 1, -1):
        if all(_inside(own.text, where, size) for own, where in found):
            return [(own, where, size) for own, where in found]
    tight = [own.text for own, where in found if not _inside(own.text, where, SMALLEST)]
    raise SpecError(f"{tight} of a diagram do not fit their boxes in {SMALLEST} points.")


def _inside(text: str, place: Place, size: int) -> bool:
    """Whether a text of a diagram fits its box, and no word of it is broken."""
    inner = place[2] - 2 * TIGHT
    words = max((width(word) for word in text.split()), default=0.0) * size / 72
    return not text or (words <= inner and height(text.split("\n"), inner, size) <= place[3] + 0.02)


def _reasons(slide: Slide) -> list[Box]:
    """Return a reason beside each formula, and what they give with numbers below."""
    count = len(slide.formulas)
    high = ROWS / count
    found = [
        fitted((text,), (REASON, TOP + row * high, LEFT + WIDE - REASON, high), 20, "reason")
        for row, text in enumerate(slide.lines[:count])
    ]
    size = min(box.size for box in found)  # all look alike
    found = [box._replace(size=size, step=row) for row, box in enumerate(found)]
    below = (LEFT, TOP + ROWS + 0.05, WIDE, 0.75)
    numbers = fitted((" ".join(slide.lines[count:]),), below, 20, "numbers", bold=True)
    return [*found, numbers._replace(step=count)]


def board(slide: Slide) -> Place:
    """Return the place of a slide's formulas: what its lines leave, in 22 points, and enough in any case."""
    lines = height(slide.lines, WIDE - 2 * INSET[0] - BULLET, 22) + 0.4 if slide.lines else 0.0
    return LEFT, TOP, WIDE, max(FORMULAS, END - TOP - lines)


def formula_places(slide: Slide, sizes: Sequence[tuple[float, float]]) -> list[Place]:
    """Return the places of a slide's formulas, all in one size of type, as large as there is room.

    sizes: their widths and heights in inches, in type of one point. Those of a derivation are each in the middle of the
    line of its reason, others below each other in the middle of theirs.
    """
    wides, highs = zip(*sizes, strict=True)
    if slide.stepwise:
        line = ROWS / len(sizes)
        points = min(STEP, (line - 0.08) / max(highs), (REASON - LEFT - 0.3) / max(wides))
        tops = [TOP + row * line + (line - points * high) / 2 for row, high in enumerate(highs)]
    else:
        _, top, wide, high = board(slide)
        room = high - APART * (len(sizes) - 1)
        points = min(FORMULA, room / sum(highs), (wide - INSET[0]) / max(wides))
        above_each = accumulate(highs[:-1], initial=0.0)
        top += (room - points * sum(highs)) / 2
        tops = [top + points * own + APART * row for row, own in enumerate(above_each)]
    return [
        (LEFT + INSET[0], top, points * wide, points * high)
        for top, (wide, high) in zip(tops, sizes, strict=True)
    ]


def cells(slide: Slide) -> Cells:
    """Return the table of a slide, in the largest type in which it fits; raises SpecError where none does."""
    top = TOP + (above(slide.lines) + 0.1 if slide.lines else 0.0)
    columns = _columns(slide.table)
    for size in range(24, IN_TABLES - 1, -1):
        rows = tuple(
            max(
                height((text,), wide - MARGIN, size)
                for text, wide in zip(row, columns, strict=True)
            )
            + 0.12
            for row in slide.table
        )
        if top + sum(rows) <= END:
            return Cells(slide.table, (LEFT, top, WIDE, sum(rows)), columns, rows, size)
    raise SpecError(f"the table of {slide.title!r} does not fit a slide in {IN_TABLES} points.")


def _columns(table: Sequence[Sequence[str]]) -> tuple[float, ...]:
    """Return the widths of columns: as long as their texts, but no word is broken."""
    longest = [max(width(row[column]) for row in table) for column in range(len(table[0]))]
    words = [
        max(width(word) for row in table for word in row[column].split() or [""])
        for column in range(len(table[0]))
    ]
    least = [18 / 72 * BOLD * word + MARGIN for word in words]
    left = WIDE - sum(least)
    return tuple(own + left * most / sum(longest) for own, most in zip(least, longest, strict=True))


def above(lines: Sequence[str]) -> float:
    """Return the height of the lines above a table."""
    return height(lines, WIDE - 2 * INSET[0], 18) + 2 * INSET[1] + 0.05


def fitted(
    lines: Sequence[str],
    place: Place,
    largest: int,
    role: str = "body",
    bold: bool = False,
    bullets: bool = False,
) -> Box:
    """Return a text in its place, in the largest size in which it fits; raises SpecError below the smallest."""
    for size in range(largest, SMALLEST - 1, -1):
        own = Box(place, tuple(lines), size, role, bold, bullets)
        if fits(own):
            return own
    raise SpecError(f"{' '.join(lines)[:60]!r}... does not fit its box in {SMALLEST} points.")


def fits(box: Box) -> bool:
    """Whether a text is as high as its box, or less."""
    _, _, wide, high = box.place
    inner = wide - 2 * INSET[0] - (BULLET if box.bullets else 0)
    if box.role == "code":  # of one width, and without space between its lines
        across = MONO * max(map(len, box.lines)) * box.size / 72
        return across <= inner and len(box.lines) * LINE * box.size / 72 + 2 * INSET[1] <= high
    return height(box.lines, inner, box.size, box.bold) + 2 * INSET[1] <= high


def height(lines: Sequence[str], wide: float, size: int, bold: bool = False) -> float:
    """Return the inches of lines that are wrapped at a width."""
    count = sum(wrapped(line, wide * 72 / size / (BOLD if bold else 1)) for line in lines)
    return (count * LINE + (len(lines) - 1) * PARAGRAPH) * size / 72


def wrapped(line: str, wide: float) -> int:
    """Return how many lines a text takes, `wide` em each; a longer word takes more than one."""
    count, used = 1, 0.0
    for word in line.split():
        own = width(word)
        if used and used + WIDTHS[" "] + own > wide:
            count, used = count + 1, 0.0
        used += own + (WIDTHS[" "] if used else 0)
        more = int(used // wide)
        count, used = count + more, used - more * wide
    return count


def width(text: str) -> float:
    """Return the em of a text in Arial, or somewhat more."""
    return sum(WIDTHS.get(sign, USUAL) for sign in text)
