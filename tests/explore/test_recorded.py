"""A page opened again goes on where its learner stopped, from their record alone."""

import ipywidgets
import numpy as np
import pytest

from lib_dlhpc.classroom import learner, record, recording
from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import Drawn

TEXTS = {
    "exposed": {"guess": "How many ms?", "unit": "ms", "because": "So it is."},
    "which": {"guess": "Which?", "options": ["ring", "tree"]},
    "hidden": {
        "check": "All of it?",
        "answers": [["yes", "No: x."], ["no", "Right."]],
        "right": "no",
    },
    "own": {
        "compute": "What is {number} squared?",
        "hint": "Multiply.",
        "mistakes": {"twice": "That is twice {number}. Multiply it by itself."},
    },
    "try_it": {"steps": [["Double it.", "It fits."], ["Halve it.", "Faster."]]},
}


def draw(rng: np.random.Generator) -> Drawn:
    number = int(rng.integers(1, 10**6))
    return {"number": number}, float(number**2), {"twice": 2.0 * number}


def page():
    """A page's cards in a fresh kernel, and its lesson."""
    outcomes = {
        "exposed": (lambda: 8.0, lambda: ipywidgets.Label("the chart")),
        "which": (lambda: "tree", None),
    }
    lesson = Lesson(TEXTS, outcomes, draws={"own": draw}, module="toy")
    cards = {name: lesson.ask(name) for name in TEXTS if name != "try_it"}
    for number, step in enumerate(lesson.ask("try_it").children, 1):
        cards[f"try_it.{number}"] = step
    return lesson, {name: card.question for name, card in cards.items()}


@pytest.fixture
def joined(tmp_path, monkeypatch):
    monkeypatch.setenv(learner.HOME, str(tmp_path / "learner"))
    monkeypatch.delenv(recording.CLASS, raising=False)
    return learner.join(tmp_path / "learner")


def arrive(questions):
    """The browser shows the page, and says who is there."""
    for question in questions.values():
        question.visitor = [1, ""]


ANSWERS = {"exposed": "16", "which": "ring", "hidden": "yes", "try_it.1": "it fits?"}


def test_what_was_answered_is_shown_again_and_nothing_twice_in_the_record(joined):
    _, before = page()
    arrive(before)
    for name, answer in ANSWERS.items():
        before[name].given = [1, answer]
    written = record.entries(joined.folder)
    lesson, after = page()
    assert not any(question.verdict for question in after.values())
    arrive(after)
    assert {name: after[name].verdict for name in before} == {
        name: question.verdict for name, question in before.items()
    }
    assert after["exposed"].verdict["final"] and not after["hidden"].verdict["final"]
    assert [guess.guess for guess in lesson.guesses] == ["16 ms", "ring"]
    now = record.entries(joined.folder)
    assert now[: len(written)] == written and not [e for e in now[len(written) :] if e.question]


def test_an_answer_is_recorded_with_what_a_teacher_asks(joined):
    _, questions = page()
    questions["exposed"].answer("16 ms")
    questions["hidden"].answer("yes")
    questions["hidden"].answer("no")
    guess, wrong, right = record.entries(joined.folder)
    assert (guess.module, guess.question, guess.kind, guess.asked) == (
        *("toy", "exposed", "guess"),
        "How many ms?",
    )
    assert (guess.value, guess.result, guess.right, guess.final) == (16.0, "8 ms", False, True)
    assert (wrong.attempt, wrong.right, right.attempt, right.right) == (1, False, 2, True)


def test_what_the_browser_gives_back_is_no_new_answer(joined):
    _, questions = page()
    arrive(questions)
    questions["exposed"].given = [1, "16", True]
    assert questions["exposed"].verdict["final"]
    assert [entry.kind for entry in record.entries(joined.folder)] == ["open"]


def test_an_answer_that_no_kernel_acknowledged_is_recorded_once_when_it_is_given_again(joined):
    _, lost = page()
    lost["hidden"].given = [5, "yes"]  # recorded, but the page did not hear of it
    assert lost["hidden"].heard == 5
    _, questions = page()
    arrive(questions)
    questions["hidden"].given = [6, "yes", "late"]
    questions["exposed"].given = [7, "16", "late"]
    assert (questions["hidden"].heard, questions["exposed"].heard) == (6, 7)
    assert questions["exposed"].verdict["final"]
    given = [(e.question, e.answer) for e in record.entries(joined.folder) if e.question]
    assert given == [("hidden", "yes"), ("exposed", "16")]


def test_what_is_no_number_is_no_answer(joined):
    _, questions = page()
    questions["exposed"].answer("many")
    assert record.entries(joined.folder) == []


def test_each_learner_has_a_variant_that_stays(joined):
    _, first = page()
    _, second = page()
    arrive(first)
    arrive(second)
    assert first["own"].question == second["own"].question
    number = int(first["own"].question.split()[2])
    assert first["own"].answer(str(number**2))["right"]
    learner.forget(joined.folder)
    learner.join(joined.folder)
    _, other = page()
    arrive(other)
    assert other["own"].question != first["own"].question


def test_a_second_miss_is_one_after_a_reload_as_well(joined):
    _, before = page()
    arrive(before)
    number = int(before["own"].question.split()[2])
    said = f"That is twice {number}. Multiply it by itself."
    assert before["own"].answer(str(2 * number))["words"] == said
    _, again = page()
    arrive(again)
    assert again["own"].verdict["words"] == said, "the same miss, shown once more"
    assert again["own"].answer("-1")["words"] == "Too small. Multiply."
    _, after = page()
    arrive(after)
    assert after["own"].verdict == again["own"].verdict
    assert len([entry for entry in record.entries(joined.folder) if entry.question]) == 2


def test_an_answer_that_cannot_be_recorded_is_judged_and_says_so(joined):
    _, questions = page()
    (joined.folder / learner.RECORD).mkdir()
    words = questions["exposed"].answer("16")["words"]
    assert "it is 8 ms" in words and "Not recorded: Is a directory" in words
