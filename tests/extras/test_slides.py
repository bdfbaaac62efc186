"""A deck as a PowerPoint file: titles, lines, notes, and pictures that say what they show."""

import runpy
from io import BytesIO

import pytest
from pptx import Presentation

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.slides.deck import deck


@pytest.mark.parametrize("module", PATH[:2], ids=str)  # the second has derivations
def test_a_file_has_the_slides_of_its_deck(repository, module):
    slides, file = deck(module, repository), BytesIO()
    runpy.run_path(str(repository / "instructor_notes" / "slides.py"))["write"](
        slides, module, file
    )
    shown = list(Presentation(file).slides)
    assert any(slide.formulas for slide in slides)
    assert module is PATH[0] or any(slide.stepwise for slide in slides)
    assert [own.shapes.title.text_frame.text for own in shown] == [slide.title for slide in slides]
    for own, slide in zip(shown, slides, strict=True):
        text = "\n".join(shape.text_frame.text for shape in own.shapes if shape.has_text_frame)
        assert all(line in text for line in slide.lines)
        assert own.notes_slide.notes_text_frame.text == slide.notes
        described = [
            shape._element.nvPicPr.cNvPr.get("descr")
            for shape in own.shapes
            if shape.shape_type == 13
        ]
        summary = [slide.figure.summary] if slide.figure else []
        assert described == [*summary, *slide.formulas]
        if slide.stepwise:
            beside(own, len(slide.formulas))


def beside(own, count):
    """Assert that each formula stands left of its reason and at its height, and that nothing is below the slide."""
    pictures = [shape for shape in own.shapes if shape.shape_type == 13]
    boxes = [shape for shape in own.shapes if shape.has_text_frame][1 : 1 + count]
    for drawn, reason in zip(pictures, boxes, strict=True):
        assert drawn.left + drawn.width < reason.left
        assert reason.top <= drawn.top and drawn.top + drawn.height <= reason.top + reason.height
    assert all(shape.top + shape.height <= 7.5 * 914400 for shape in own.shapes)
