"""What is said beside a slide: nothing twice, answers with their reasons, and no list of what a drawing has."""

import re
from itertools import pairwise

import pytest

from lib_dlhpc.explore.blocks.lesson import check_of
from lib_dlhpc.explore.course import PATH
from lib_dlhpc.explore.slides.notebook import notebook_text
from lib_dlhpc.explore.slides.notes import said, unrepeated
from lib_dlhpc.explore.slides.slide import BOARD, EARLIER, Slide
from lib_dlhpc.explore.slides.sources import lesson_of

NAMES = [module.name for module in PATH]
LAST = "Last of all, this sentence of more words stays in its place."
LONG = "One sentence that has more words than eight of them."


@pytest.mark.parametrize("name", NAMES)
def test_no_sentence_is_said_twice_on_a_slide_or_on_neighbors(decks, name):
    for slide in decks[name]:
        found = list(said(slide.notes))
        assert len(set(found)) == len(found), slide.title
    for one, other in pairwise(decks[name]):
        assert not set(said(one.notes)) & set(said(other.notes)), other.title


def test_a_repeated_sentence_goes_with_the_short_one_after_it():
    slides = [
        Slide("A", notes=f"{LONG}\nShort.\n1. {LONG} It goes.\n{LONG} So does this."),
        Slide("B", notes=f"Short.\n- {LONG}\nAnother one. {LONG} It goes. {LAST}"),
        Slide("C", notes=f"C. {LONG}"),
    ]
    first, second, third = (slide.notes for slide in unrepeated(slides))
    assert first == f"{LONG}\nShort." and third == ""
    assert second == f"Short.\nAnother one. {LAST}"


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_of_an_earlier_module_has_its_letter_and_its_reason(decks, name, repository):
    lesson = lesson_of(notebook_text(repository / "modules" / f"{name}.ipynb"))
    asked = lesson.texts.get("earlier", {}).get("recall", ())
    for slide in decks[name]:
        if slide.kind == EARLIER:
            answers = re.findall(r"^([A-G])\. (.+)$", slide.notes, re.M)
            assert len(answers) == len(asked)
            for check, (letter, answer), lines in zip(
                asked, answers, (slide.lines, slide.aside), strict=True
            ):
                right = check_of(check)["right"]
                assert f"{letter}. {right}" in lines
                assert len(answer.removeprefix(f"{right}: ").split()) >= 4, answer


@pytest.mark.parametrize("name", NAMES)
def test_notes_do_not_read_out_what_a_drawing_says_to_those_who_cannot_see_it(decks, name):
    for slide in decks[name]:
        if slide.diagram:
            assert slide.diagram.said not in slide.notes, slide.title
            if slide.kind == BOARD:
                assert slide.title in slide.notes and len(slide.notes.split()) < 80, slide.title
            assert (
                max(map(slide.diagram.said.split("; ").count, slide.diagram.said.split("; "))) <= 2
            )
