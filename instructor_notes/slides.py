"""Write slides of the modules and the labs: `make slides`, or `python slides.py [FOLDER] [NUMBER ...]`.

A deck is made of what its module's page has, or its lab's README, checks and notes (lib_dlhpc/explore/slides), with
speaker notes: as a PowerPoint file, which can be edited, and as a page, which a browser presents and prints. NUMBER: 02
for a module, lab_02 for a lab.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from pathlib import Path

import vl_convert

from lib_dlhpc.extras import installer

try:
    import_module("ziamath")  # which draws formulas
    from pptx import Presentation
    from pptx.dml.color import RGBColor
    from pptx.enum.shapes import MSO_CONNECTOR, MSO_SHAPE
    from pptx.enum.text import MSO_ANCHOR, PP_ALIGN
    from pptx.oxml import parse_xml
    from pptx.oxml.ns import qn
    from pptx.util import Inches, Pt
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed; `{installer('slides')}` installs it.")

from lib_dlhpc.explore.course import LABS, PATH
from lib_dlhpc.explore.slides import builds, layout
from lib_dlhpc.explore.slides.deck import deck
from lib_dlhpc.explore.slides.diagram import Diagram, Shape
from lib_dlhpc.explore.slides.lab_deck import lab_deck, lab_title
from lib_dlhpc.explore.slides.page import page
from lib_dlhpc.explore.slides.picture import emblem as drawing
from lib_dlhpc.explore.slides.picture import formula, png
from lib_dlhpc.explore.slides.references import parts
from lib_dlhpc.explore.slides.slide import RIGHT, Slide

Clicks = defaultdict[int, list[str]]  # what appears at each click

REPOSITORY = Path(__file__).parents[1]
FONT, MONO = "Arial", "Courier New"  # layout.py has their widths
BLUE, RUST, GRAY = (
    RGBColor(0x00, 0x4C, 0x6D),
    RGBColor(0xA8, 0x44, 0x00),
    RGBColor(0x55, 0x55, 0x55),
)
PALE, WHITE, INK = (
    RGBColor(0xEA, 0xF2, 0xF6),
    RGBColor(0xFF, 0xFF, 0xFF),
    RGBColor(0x22, 0x22, 0x22),
)
ALIGNED = {"left": PP_ALIGN.LEFT, "center": PP_ALIGN.CENTER, "right": PP_ALIGN.RIGHT}
COLORS = {
    "title": BLUE,
    "kind": RUST,
    "source": GRAY,
    "foot": GRAY,
    "numbers": BLUE,
    "result": BLUE,
}


def main(folder: str = "build/slides", *numbers: str) -> None:
    """Write the decks of all modules and labs, or of those with these numbers, into `folder`."""
    into = Path(folder)
    into.mkdir(parents=True, exist_ok=True)
    for name, title, slides in decks(numbers):
        write(slides, title, into / f"{name}.pptx")
        (into / f"{name}.html").write_text(page(slides, title), encoding="utf-8")
        print(f"{name}: {len(slides)} slides")


def decks(numbers: tuple[str, ...]) -> Iterator[tuple[str, str, list[Slide]]]:
    """Yield the names of files, titles and slides of modules and labs, all or those with these numbers."""
    for module in PATH:
        if not numbers or module.number in numbers:
            yield module.name, module.heading, deck(module, REPOSITORY)
    for lab in LABS:
        if not numbers or f"lab_{lab[:2]}" in numbers:
            yield f"lab_{lab}", lab_title(lab), lab_deck(lab, REPOSITORY)


def write(slides: list[Slide], title: str, path: Path) -> None:
    """Write one deck."""
    shown = Presentation()
    shown.slide_width, shown.slide_height = Inches(layout.WIDTH), Inches(layout.HEIGHT)
    shown.core_properties.title = title
    for slide in slides:
        add(shown, slide, f"lib_dlhpc · {title}")
    shown.save(path)


def add(shown: Presentation, slide: Slide, foot: str) -> None:
    """Add one slide: its texts, its number, what it shows and what to say."""
    own = shown.slides.add_slide(shown.slide_layouts[5])
    bar = own.shapes.add_shape(MSO_SHAPE.RECTANGLE, 0, 0, Inches(0.22), Inches(layout.HEIGHT))
    paint(bar, BLUE)
    clicks = Clicks(list)
    for box in layout.boxes(slide, foot):
        put(own, box, clicks)
    number(own)
    if slide.emblem:
        emblem(own, slide.emblem)
    if slide.diagram:
        diagram(own, slide.diagram, layout.BESIDE, clicks if slide.unfolds else Clicks(list))
    if slide.figure:
        picture(own, slide)
    elif slide.table:
        table(own, layout.cells(slide))
    elif slide.formulas:
        formulas(own, slide, clicks)
    if clicks:
        timing = parse_xml(builds.timing([clicks[at] for at in sorted(clicks)]))
        own._element.append(timing)
    own.notes_slide.notes_text_frame.text = slide.notes


def put(own, box: layout.Box, clicks: Clicks) -> None:
    """Put a text on the slide, in its place; add to `clicks` what of it appears later."""
    shape = own.shapes.title if box.role == "title" else own.shapes.add_textbox(0, 0, 0, 0)
    shape.left, shape.top, shape.width, shape.height = map(Inches, box.place)
    frame = shape.text_frame
    frame.text, frame.word_wrap = "\n".join(box.lines), True
    middle = box.role in ("reason", "numbers")
    frame.vertical_anchor = MSO_ANCHOR.MIDDLE if middle else MSO_ANCHOR.TOP
    if box.role == "aside":
        paint(shape, PALE)
    if box.step:
        clicks[box.step].append(builds.shape(shape.shape_id))
    for at, paragraph in enumerate(frame.paragraphs):
        paragraph.alignment = PP_ALIGN.LEFT
        right = paragraph.text.startswith(RIGHT)
        if right:
            clicks[1].append(builds.line(shape.shape_id, at))
        link(paragraph)
        color = BLUE if right else COLORS.get(box.role, INK)
        type_(paragraph, box.size, color, box.bold or right)
        if box.role == "code":
            for font in (paragraph.font, *(run.font for run in paragraph.runs)):
                font.name = MONO
        elif paragraph is not frame.paragraphs[-1]:
            paragraph.space_after = Pt(layout.PARAGRAPH * box.size)
        if box.bullets and not paragraph.text.endswith(":"):
            mark(paragraph)


def link(paragraph) -> None:
    """Make links of the papers that a paragraph names."""
    found = list(parts(paragraph.text))
    if any(address for _, address in found):
        paragraph.clear()
        for part, address in found:
            run = paragraph.add_run()
            run.text = part
            if address:
                run.hyperlink.address = address


def type_(paragraph, size: int, color: RGBColor, bold: bool = False) -> None:
    """Set the type of a paragraph, and of its runs: PowerPoint takes that of a run from nowhere else."""
    for font in (paragraph.font, *(run.font for run in paragraph.runs)):
        font.size, font.bold, font.name, font.color.rgb = Pt(size), bold, FONT, color


def mark(paragraph) -> None:
    """Put a bullet before a paragraph."""
    about = paragraph._p.get_or_add_pPr()
    about.set("marL", str(Inches(layout.BULLET)))
    about.set("indent", str(-Inches(layout.BULLET)))
    about.append(about.makeelement(qn("a:buChar"), {"char": "•"}))


def paint(shape, color: RGBColor) -> None:
    """Fill a shape, without an outline."""
    shape.fill.solid()
    shape.fill.fore_color.rgb = color
    shape.line.fill.background()


def number(own) -> None:
    """Put the slide's number into its corner, as a field: it is right after slides are moved."""
    place = (layout.LEFT + layout.WIDE - 1, 6.97, 1.0, 0.36)
    paragraph = own.shapes.add_textbox(*map(Inches, place)).text_frame.paragraphs[0]
    paragraph.alignment = PP_ALIGN.RIGHT
    run = paragraph.add_run()
    run.text = "0"
    run.font.size, run.font.name, run.font.color.rgb = Pt(layout.SMALLEST), FONT, GRAY
    run._r.tag = qn("a:fld")
    run._r.set("id", "{B6F15528-21DE-4FAA-801E-634DDDAF4B2B}")
    run._r.set("type", "slidenum")


def table(own, cells: layout.Cells) -> None:
    """Put a table on the slide: a heading on blue, and rows on white and pale."""
    left, top, wide, high = map(Inches, cells.place)
    shown = own.shapes.add_table(len(cells.rows), len(cells.columns), left, top, wide, high).table
    for column, wide in zip(shown.columns, cells.columns, strict=True):
        column.width = Inches(wide)
    for down, (row, high) in enumerate(zip(shown.rows, cells.rows, strict=True)):
        row.height = Inches(high)
        for cell, text in zip(row.cells, cells.texts[down], strict=True):
            cell.text_frame.text = text
            cell.fill.solid()
            cell.fill.fore_color.rgb = PALE if down % 2 else WHITE
            if not down:
                cell.fill.fore_color.rgb = BLUE
            type_(cell.text_frame.paragraphs[0], cells.size, INK if down else WHITE, not down)


def picture(own, slide: Slide) -> None:
    """Put the figure on the slide, drawn for its place, with its summary for those who cannot see it."""
    drawn = BytesIO(png(slide.figure, layout.figure_size(slide), slide.covered))
    shape = own.shapes.add_picture(drawn, *map(Inches, layout.figure_place(slide)))
    shape._element.nvPicPr.cNvPr.set("descr", slide.described)


def emblem(own, folder: str) -> None:
    """Put the small picture of a module on the slide, with what it shows for those who cannot see it."""
    svg, said = drawing(folder)
    file = BytesIO(vl_convert.svg_to_png(svg, scale=4))
    shape = own.shapes.add_picture(file, *map(Inches, layout.EMBLEM))
    shape._element.nvPicPr.cNvPr.set("descr", said)


def diagram(own, shown: Diagram, place: layout.Place, clicks: Clicks) -> None:
    """Put a diagram on the slide, a group of shapes for each click, with what it shows for those who cannot see it."""
    groups = {step: own.shapes.add_group_shape() for step in sorted({e.step for e in shown.shapes})}
    for step, group in groups.items():
        group._element.nvGrpSpPr.cNvPr.set("descr", shown.said)
        if step:
            clicks[step].append(builds.shape(group.shape_id))
    for each, where, size in layout.drawn(shown, place):
        box(groups[each.step], each, where, size)
    left, top, wide, high = place
    for each in shown.arrows:
        ends = [(left + x * wide, top + y * high) for x, y in (each.start, each.end)]
        arrow(
            groups[0],
            *(Inches(at) for end in ends for at in end),
            heads=0 if each.plain else 1 + each.both,
        )


def box(group, each: Shape, where: layout.Place, size: int) -> None:
    """Add a box of a diagram, or words alone, to its group."""
    left, top, wide, high = map(Inches, where)
    shape = unstyled(group.shapes.add_shape(MSO_SHAPE.RECTANGLE, left, top, wide, high))
    if each.fill:
        paint(shape, RGBColor.from_string(each.fill))
        shape.line.color.rgb, shape.line.width = GRAY, Pt(0.75)
    else:
        shape.fill.background()
        shape.line.fill.background()
    frame = shape.text_frame
    frame.text, frame.word_wrap, frame.vertical_anchor = each.text, True, MSO_ANCHOR.MIDDLE
    frame.margin_left = frame.margin_right = Inches(layout.TIGHT)
    frame.margin_top = frame.margin_bottom = 0
    for paragraph in frame.paragraphs:
        paragraph.alignment = ALIGNED[each.align]
        type_(paragraph, size, INK)


def arrow(group, *ends: int, heads: int) -> None:
    """Add a line to a group, with a head at its end, at both, or none."""
    line = unstyled(group.shapes.add_connector(MSO_CONNECTOR.STRAIGHT, *ends)).line
    line.color.rgb, line.width = INK, Pt(1.75)
    for tag in ("a:headEnd", "a:tailEnd")[2 - heads :]:
        line._get_or_add_ln().append(line._ln.makeelement(qn(tag), {"type": "triangle"}))


def unstyled(shape):
    """Return a shape without the shadow that the theme gives it."""
    shape._element.remove(shape._element.find(qn("p:style")))
    return shape


def formulas(own, slide: Slide, clicks: Clicks) -> None:
    """Put the formulas of a slide into their places, with their TeX as description; one at each click, if stepwise."""
    drawn = [formula(tex) for tex in slide.formulas]
    places = layout.formula_places(slide, [size for _, size in drawn])
    for at, (tex, (svg, _), place) in enumerate(zip(slide.formulas, drawn, places, strict=True)):
        file = BytesIO(vl_convert.svg_to_png(svg, scale=4))
        shape = own.shapes.add_picture(file, *map(Inches, place))
        shape._element.nvPicPr.cNvPr.set("descr", tex)
        if slide.stepwise and at:
            clicks[at].append(builds.shape(shape.shape_id))


if __name__ == "__main__":
    main(*sys.argv[1:])
