"""Write slides of the modules as PowerPoint files: `make slides`, or `python slides.py [FOLDER] [NUMBER ...]`.

A deck is made of what its module's page has (lib_dlhpc/explore/slides), with speaker notes. It can be edited.
"""

import sys
from io import BytesIO
from pathlib import Path

import vl_convert
import ziamath
from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.enum.text import MSO_ANCHOR
from pptx.oxml.ns import qn
from pptx.util import Inches, Pt

from lib_dlhpc.explore.course import PATH, Module
from lib_dlhpc.explore.slides.deck import CHECK, EARLIER, PREDICT, Slide, deck
from lib_dlhpc.explore.slides.picture import png

REPOSITORY = Path(__file__).parents[1]
WIDTH, HEIGHT = 13.333, 7.5  # in
LEFT, TOP, WIDE = 0.6, 1.45, 12.1
SIZES = (
    (200, 30),
    (380, 26),
    (620, 22),
    (900, 19),
)  # characters of a slide, and the points that they fit in
TALL = Inches(4.7)  # of a picture
FORMULA, FORMULAS = 0.9, 3.2  # in, the height of a formula, and of all, at most
ROWS, REASON = 4.7, 7.6  # in, the height of a derivation's lines, and where their reasons begin
BLUE = RGBColor(0x00, 0x4C, 0x6D)


def main(folder: str = "build/slides", *numbers: str) -> None:
    """Write the decks of all modules, or of those with these numbers, into `folder`."""
    into = Path(folder)
    into.mkdir(parents=True, exist_ok=True)
    for module in PATH:
        if not numbers or module.number in numbers:
            slides = deck(module, REPOSITORY)
            write(slides, module, into / f"{module.name}.pptx")
            print(f"{module.name}: {len(slides)} slides")


def write(slides: list[Slide], module: Module, path: Path) -> None:
    """Write one deck."""
    shown = Presentation()
    shown.slide_width, shown.slide_height = Inches(WIDTH), Inches(HEIGHT)
    shown.core_properties.title = f"{module.number} {module.title}"
    for number, slide in enumerate(slides, 1):
        add(shown, slide, f"{module.number} {module.title} · {number}")
    shown.save(path)


def add(shown: Presentation, slide: Slide, foot: str) -> None:
    """Add one slide."""
    bare = slide.figure or slide.stepwise or slide.table
    own = shown.slides.add_slide(shown.slide_layouts[5 if bare else 1])
    place(own.shapes.title, 0.35, 1.0)
    own.shapes.title.text_frame.text = slide.title
    style(own.shapes.title.text_frame, 36 if len(slide.title) < 38 else 28, bold=True)
    if slide.kind:
        words(own, slide.kind.upper(), (LEFT, 0.1, WIDE, 0.4), 14, bold=True)
    if slide.figure:
        caption = own.shapes.add_textbox(Inches(LEFT), Inches(6.25), Inches(WIDE), Inches(0.7))
        caption.text_frame.text = " ".join(slide.lines)
        style(caption.text_frame, 18)
        picture(own, slide)
    elif slide.stepwise:
        derivation(own, slide)
    elif slide.table:
        table(own, slide)
    else:
        body, above = own.placeholders[1], formulas(own, slide.formulas)
        place(body, TOP + above, 5.3 - above)
        body.text_frame.text = "\n".join(slide.lines)
        style(body.text_frame, points(slide.lines) if not above else 20)
        if slide.kind in (PREDICT, CHECK) or slide.title == EARLIER:
            unmark(body.text_frame)
    end = own.shapes.add_textbox(Inches(LEFT), Inches(7.0), Inches(WIDE), Inches(0.4))
    end.text_frame.text = foot
    style(end.text_frame, 12)
    own.notes_slide.notes_text_frame.text = slide.notes


def place(shape, top: float, high: float) -> None:
    """Place a shape across the slide."""
    shape.left, shape.top, shape.width, shape.height = map(Inches, (LEFT, top, WIDE, high))


def points(lines: tuple[str, ...]) -> int:
    """Return the size in which the lines fit."""
    much = sum(max(len(line), 60) for line in lines)
    return next((size for most, size in SIZES if much <= most), 16)


def style(frame, size: int, bold: bool = False) -> None:
    """Set all text of a frame."""
    frame.word_wrap = True
    for paragraph in frame.paragraphs:
        paragraph.font.size, paragraph.font.bold = Pt(size), bold
        paragraph.space_after = Pt(size // 3)
        if bold:
            paragraph.font.color.rgb = BLUE


def unmark(frame) -> None:
    """Take the bullets off: a question and its options have letters."""
    for paragraph in frame.paragraphs:
        about = paragraph._p.get_or_add_pPr()
        about.set("marL", "0")
        about.set("indent", "0")
        about.insert(0, about.makeelement(qn("a:buNone"), {}))


def table(own, slide: Slide) -> None:
    """Put a table on the slide, under the lines that go with it."""
    above = 0.45 * len(slide.lines) * (1 + max(map(len, slide.lines)) // 100) if slide.lines else 0
    if above:
        words(own, "\n".join(slide.lines), (LEFT, TOP - 0.1, WIDE, above), 20)
    rows, columns = len(slide.table), len(slide.table[0])
    place_ = map(Inches, (LEFT, TOP + above, WIDE, min(0.55 * rows, 5.2 - above)))
    cells = own.shapes.add_table(rows, columns, *place_).table
    longest = [max(len(row[column]) for row in slide.table) for column in range(columns)]
    for column, most in enumerate(longest):
        cells.columns[column].width = round(
            Inches(WIDE) * max(most, 8) / sum(max(n, 8) for n in longest)
        )
    much = sum(len(cell) for row in slide.table for cell in row)
    for down, row in enumerate(slide.table):
        for across, text in enumerate(row):
            cell = cells.cell(down, across)
            cell.text_frame.text = text
            for paragraph in cell.text_frame.paragraphs:
                paragraph.font.size = Pt(20 if much < 350 else 16)


def picture(own, slide: Slide) -> None:
    """Put the figure on the slide, as large as there is room, with its summary for those who cannot see it."""
    drawn = own.shapes.add_picture(
        BytesIO(png(slide.figure)), Inches(LEFT), Inches(TOP), width=Inches(WIDE)
    )
    if drawn.height > TALL:
        drawn.width, drawn.height = round(drawn.width * TALL / drawn.height), TALL
    drawn.left = round((Inches(WIDTH) - drawn.width) / 2)
    drawn._element.nvPicPr.cNvPr.set("descr", slide.figure.summary)


def formulas(own, texts: tuple[str, ...]) -> float:
    """Put formulas below each other on top of the slide, with their TeX as description; return their height in in."""
    top, tall = 0.0, min(FORMULA, FORMULAS / max(1, len(texts)) - 0.15)
    for tex in texts:
        drawn = formula(own, tex, TOP + top, WIDE, tall)
        top += drawn.height / Inches(1) + 0.15
    return top


def formula(own, tex: str, top: float, wide: float, tall: float, most: float = 64):
    """Put one formula on the left of the slide, as large as there is room, up to `most` points, with its TeX."""
    picture_ = vl_convert.svg_to_png(ziamath.Latex(tex, size=28).svg(), scale=4)  # 112 points
    drawn = own.shapes.add_picture(BytesIO(picture_), Inches(LEFT), Inches(top))
    shrink = min(Inches(tall) / drawn.height, Inches(wide) / drawn.width, most / 112)
    drawn.width, drawn.height = round(shrink * drawn.width), round(shrink * drawn.height)
    drawn._element.nvPicPr.cNvPr.set("descr", tex)
    return drawn


def derivation(own, slide: Slide) -> None:
    """Put formulas below each other, each beside its reason, and below them what they give with numbers."""
    count = len(slide.formulas)
    high = ROWS / count
    for number, (tex, because) in enumerate(zip(slide.formulas, slide.lines, strict=False)):
        top = TOP + number * high
        drawn = formula(own, tex, top, REASON - LEFT - 0.4, high - 0.15, most=26)
        drawn.top += round((Inches(high) - drawn.height) / 2)
        words(own, because, (REASON, top, LEFT + WIDE - REASON, high), 18)
    words(own, " ".join(slide.lines[count:]), (LEFT, TOP + ROWS + 0.05, WIDE, 0.75), 18, bold=True)


def words(own, text: str, place_: tuple[float, float, float, float], size: int, bold=False) -> None:
    """Put a text on the slide, in the middle of a place: left, top, width, height in in."""
    box = own.shapes.add_textbox(*map(Inches, place_))
    box.text_frame.text, box.text_frame.vertical_anchor = text, MSO_ANCHOR.MIDDLE
    style(box.text_frame, size, bold)


if __name__ == "__main__":
    main(*sys.argv[1:])
