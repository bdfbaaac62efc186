"""A deck as a PowerPoint file: titles, lines, notes, numbers, and pictures that say what they show."""

import re
import runpy
from io import BytesIO
from itertools import pairwise

import pytest
from pptx import Presentation
from pptx.util import Inches, Pt

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.slides.deck import deck
from lib_dlhpc.explore.slides.layout import SMALLEST, boxes, cells
from lib_dlhpc.explore.slides.picture import formula
from lib_dlhpc.explore.slides.slide import CHECK, PREDICT

PICTURE, GROUP = 13, 6


@pytest.fixture(scope="module", params=PATH[:3], ids=str)  # all kinds of slides are among them
def written(request, repository):
    """The slides of a deck, and those of its file."""
    slides, file = deck(request.param, repository), BytesIO()
    runpy.run_path(str(repository / "instructor_notes" / "slides.py"))["write"](
        slides, request.param.heading, file
    )
    return slides, list(Presentation(file).slides)


def test_a_file_has_the_slides_of_its_deck(written):
    slides, shown = written
    assert [own.shapes.title.text_frame.text for own in shown] == [slide.title for slide in slides]
    for own, slide in zip(shown, slides, strict=True):
        text = "\n".join(shape.text_frame.text for shape in own.shapes if shape.has_text_frame)
        assert slide.stepwise or "\n".join(slide.lines) in text
        assert own.notes_slide.notes_text_frame.text == slide.notes
        assert 'type="slidenum"' in own.shapes._spTree.xml


def test_pictures_say_what_they_show_and_not_what_is_covered(written):
    for slide, own in zip(*written, strict=True):
        described = [
            shape._element.nvPicPr.cNvPr.get("descr")
            for shape in own.shapes
            if shape.shape_type == PICTURE
        ]
        summary = [slide.figure.summary] if slide.figure else []
        if slide.covered:
            summary = [f"{slide.figure.title} The result is covered."]
        emblem = slide.aside if slide.emblem else ()  # its caption says the same
        assert described == [*emblem, *summary, *slide.formulas]
        assert slide.kind == PREDICT or not slide.covered


def test_a_diagram_is_a_group_of_shapes_that_says_what_it_shows(written):
    for slide, own in zip(*written, strict=True):
        groups = [shape for shape in own.shapes if shape.shape_type == GROUP]
        shapes = slide.diagram.shapes if slide.diagram else ()
        assert len(groups) == len({shape.step for shape in shapes})
        texts = []
        for group in groups:
            assert group._element.nvGrpSpPr.cNvPr.get("descr") == slide.diagram.said
            texts += [shape.text_frame.text for shape in group.shapes if shape.has_text_frame]
        ordered = sorted(shapes, key=lambda shape: shape.step)
        assert texts == [shape.text for shape in ordered]
        if groups:
            lines = [shape for shape in groups[0].shapes if not shape.has_text_frame]
            assert len(lines) == len(slide.diagram.arrows)


def test_what_appears_at_a_click_is_on_its_slide(written):
    """Formulas of a derivation but the first, parts of a diagram, and an answer; nothing else moves."""
    for slide, own in zip(*written, strict=True):
        shown = {shape.shape_id: shape for shape in own.shapes}
        targets = own._element.xpath(".//p:timing//p:spTgt")
        assert {int(each.get("spid")) for each in targets} <= shown.keys()
        clicks = own._element.xpath('.//p:cTn[@nodeType="clickEffect"]')
        if slide.stepwise:
            assert len(clicks) == len(slide.formulas)
            assert len(targets) == 2 * len(slide.formulas) - 1  # each but the first with its reason
        elif slide.kind == CHECK:
            (line,) = own._element.xpath(".//p:timing//p:pRg")
            text = shown[int(line.getparent().getparent().get("spid"))].text_frame
            assert text.paragraphs[int(line.get("st"))].text.startswith("Right: ")
        ids = own._element.xpath(".//p:timing//p:cTn/@id")
        assert len(set(ids)) == len(ids)


def test_papers_are_links_in_their_text(written):
    addresses = [
        run.hyperlink.address
        for own in written[1]
        for shape in own.shapes
        if shape.has_text_frame
        for paragraph in shape.text_frame.paragraphs
        for run in paragraph.runs
        if run.hyperlink.address
    ]
    assert addresses
    assert all(re.match(r"https://(arxiv|doi)\.org/", each) for each in addresses)


def test_each_text_stands_where_its_layout_has_it(written):
    """The layout's texts fit their boxes (tests/explore/slides); so do those of the file, which has no smaller type."""
    for slide, own in zip(*written, strict=True):
        texts = [shape for shape in own.shapes if shape.has_text_frame]
        for box in boxes(slide, texts[-2].text_frame.text):
            (shape,) = (each for each in texts if each.text_frame.text == "\n".join(box.lines))
            place = (shape.left, shape.top, shape.width, shape.height)
            assert place == tuple(map(Inches, box.place))
            assert all(each.font.size == Pt(box.size) for each in shape.text_frame.paragraphs)
            assert box.size >= SMALLEST
        for shape in own.shapes:
            assert shape.left + shape.width <= Inches(13.34)
            assert shape.top + shape.height <= Inches(7.5)
            if shape.has_table:
                size = {
                    each.text_frame.paragraphs[0].font.size for each in shape.table.iter_cells()
                }
                assert size == {Pt(cells(slide).size)}


def test_formulas_stand_below_each_other_and_in_front_of_their_reasons(written):
    for slide, own in zip(*written, strict=True):
        drawn = [shape for shape in own.shapes if shape.shape_type == PICTURE and slide.formulas]
        for above, below in pairwise(drawn):
            assert above.top + above.height <= below.top
        if slide.stepwise:
            texts = {each.text_frame.text: each for each in own.shapes if each.has_text_frame}
            for each, because in zip(drawn, slide.lines, strict=False):
                beside = texts[because]
                assert each.left + each.width < beside.left
                assert (
                    beside.top <= each.top and each.top + each.height <= beside.top + beside.height
                )


def test_a_formula_has_its_size_in_inches_at_one_point():
    drawn, (wide, high) = formula("x")
    taller, (broad, height) = formula(r"\frac{x}{y} + z")
    assert "<svg" in drawn and "<svg" in taller
    assert 0 < wide < broad and 0 < high < height < 0.1
    assert formula(r"a\!b")[1] == formula("ab")[1]


def test_a_number_chooses_the_deck_of_a_lab_in_both_formats(repository, tmp_path):
    main = runpy.run_path(str(repository / "instructor_notes" / "slides.py"))["main"]
    main(str(tmp_path), "lab_08")
    assert {file.name for file in tmp_path.iterdir()} == {
        "lab_08_survive.pptx",
        "lab_08_survive.html",
    }
    shown = Presentation(tmp_path / "lab_08_survive.pptx")
    assert shown.core_properties.title == "Lab 8: Survive" and len(shown.slides) == 9
