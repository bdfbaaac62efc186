"""Each lab has a deck: its task and checks to open it, its mistakes and its reflection, with answers, to debrief it."""

import re
from collections import Counter

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.course import LABS
from lib_dlhpc.explore.slides import lab_deck as decks
from lib_dlhpc.explore.slides.lab_deck import CLOSES, OPENS, lab_deck, lab_title
from lib_dlhpc.explore.slides.layout import boxes, cells
from lib_dlhpc.explore.slides.notebook import plain
from lib_dlhpc.explore.slides.slide import (
    BOARD,
    CHECK,
    DISCUSS,
    LIST,
    OPENING,
    QUESTION,
    RESULT,
    WORDS,
)
from lib_dlhpc.labs.grading.rubric import rubric_of

KINDS = [OPENING, decks.TASK, BOARD, CHECK, RESULT, DISCUSS, DISCUSS, DISCUSS, DISCUSS]
MARKED = r"^\||`|\]\(|(?<!\S)\*+\w|\w\*+(?!\S)|\\[a-zA-Z]|\$"


@pytest.fixture(scope="module", params=LABS)
def made(request, repository):
    """A lab's folder, its notes for instructors, and its slides."""
    notes = (repository / "instructor_notes" / f"lab_{request.param}.md").read_text("utf-8")
    return request.param, notes, lab_deck(request.param, repository)


def test_a_deck_opens_the_lab_and_debriefs_it_within_the_limits_of_slides(made):
    _, _, slides = made
    assert [slide.kind for slide in slides] == KINDS
    assert [slide.section for slide in slides] == [OPENS] * 4 + [CLOSES] * 5
    assert len({slide.title for slide in slides}) == len(slides)
    for slide in slides:
        assert boxes(slide, "a foot") and slide.notes.strip() and len(slide.title) < 130
        assert slide.lines or slide.table, slide.title
        words = sum(len(line.split()) for line in slide.lines)
        most = {decks.TASK: LIST, DISCUSS: QUESTION}.get(slide.kind, WORDS)
        assert words <= most and not re.search(MARKED, " ".join(slide.lines)), slide.title
        assert not re.search(MARKED, slide.notes, re.M), slide.notes
        assert not slide.table or cells(slide).size >= 14, slide.title


def test_minutes_are_those_of_the_readme_and_of_the_notes(made, repository):
    lab, notes, slides = made
    readme = (repository / "labs" / lab / "README.md").read_text("utf-8")
    (minutes,) = re.findall(r"\*\*Time\*\*\s+(\d+) minutes", readme)
    assert slides[0].title == f"{lab_title(lab)} ({minutes}\N{NO-BREAK SPACE}minutes)"
    planned = re.findall(r"^\| (\d+-\d+) \|", notes, re.M)
    assert re.findall(r"^Minutes (.+?): ", slides[0].notes, re.M) == planned


def test_what_to_write_to_reach_and_to_hand_in_is_said_in_whole_sentences(made):
    _, _, slides = made
    written, reached, handed_in = slides[1].lines
    assert written.startswith("You write: ") and reached.startswith("For full marks: ")
    assert handed_in.startswith("Hand in the notebook") and "reflection" in handed_in
    assert not any(line.endswith("…") for slide in slides for line in slide.lines)
    assert handed_in.rstrip(".") in slides[1].notes


def test_ten_points_are_those_of_the_rubric_with_mistakes_that_the_suite_runs(made, repository):
    lab, _, slides = made
    rubric, (_, *rows) = rubric_of(repository / "instructor_notes", lab), slides[3].table
    assert slides[3].title.startswith("10 points")
    counted = [plain(row.what) for row in rubric]
    assert [int(points) for points, *_ in rows] == [row.points for row in rubric]
    for what, (_, shown, _) in zip(counted, rows, strict=True):
        assert shown == ("reflection" if what.startswith("reflection") else what)
        assert shown == what or f"Read by people: {what}." in slides[3].notes
    assert [example == decks.HUMAN for *_, example in rows] == [not row.items for row in rubric]
    assert sum(example not in (decks.HUMAN, decks.NONE) for *_, example in rows) >= min(
        2, sum(bool(row.items) for row in rubric)
    )
    solution = (repository / "instructor_notes/solutions" / f"lab_{lab}.py").read_text("utf-8")
    said = " ".join(solution.replace('"\n', "").split()).replace("_", " ")
    _, *messages = slides[4].table
    assert 3 <= len(messages) <= decks.ROWS
    assert all(name in said for name, *_ in messages)
    laws = Counter(law for _, law, _ in messages)
    assert lab.startswith("03") or max(laws.values()) == 1


def test_three_questions_of_the_reflection_have_their_answers_in_the_notes(made):
    _, notes, slides = made
    answers = notes.split("## Answers to the reflection", 1)[1].split("\n## ", 1)[0]
    for slide in slides[6:]:
        (number,) = re.findall(r"^Reflection (\d):", slide.title)
        own = re.search(rf"^{number}\. (.+?)(?=^\d\. |\n\n|\Z)", answers, re.M | re.S)
        shown = slide.notes.partition("Answer: ")[2].partition("\nIn full")[0]
        assert shown and shown == plain(own[1]), slide.title
        assert not re.search(r"\bsee above\b|\bthe reason above\b", shown), slide.title


def test_messages_are_words_that_the_checks_say(repository):
    (_, *rows) = lab_deck("02_overlap", repository)[4].table
    assert ("a sum is never waited for", "Every sum is waited for", '"still in flight"') in rows


def test_a_formula_stands_as_its_notebook_has_it(repository):
    slide = lab_deck("08_survive", repository)[2]
    assert slide.formulas == ("M(e^{t/M}-1)", r"M = \frac{M_{\text{node}}}{N}")
    assert slide.source == "From the lab's notebook and module 09"


def test_each_lab_has_a_law():
    assert list(decks._laws()) == list(LABS)


def test_what_is_missing_is_named(repository, monkeypatch):
    with pytest.raises(SpecError, match="there is no lab '2'"):
        lab_deck("2", repository)
    law = decks.Law("A title", shown=("x = 3",))
    monkeypatch.setattr(decks, "_laws", lambda: {"02_overlap": law})
    with pytest.raises(SpecError, match="no notebook has a formula that begins with 'x = 3'"):
        lab_deck("02_overlap", repository)
    law = decks.Law("A title", debrief=(7,))
    monkeypatch.setattr(decks, "_laws", lambda: {"02_overlap": law})
    with pytest.raises(SpecError, match="no question 7"):
        lab_deck("02_overlap", repository)
