"""A deck as a PowerPoint file: titles, lines, notes, and pictures that say what they show."""

import runpy
from io import BytesIO

from pptx import Presentation

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.slides.deck import deck


def test_a_file_has_the_slides_of_its_deck(repository):
    module = PATH[0]
    slides, file = deck(module, repository), BytesIO()
    runpy.run_path(str(repository / "instructor_notes" / "slides.py"))["write"](
        slides, module, file
    )
    shown = list(Presentation(file).slides)
    assert any(slide.formulas for slide in slides)
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
