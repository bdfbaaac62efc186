"""A lesson covers what a guess is about, answers at once, and remembers."""

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from string import Formatter
from typing import Any

import ipywidgets
import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks import lesson as lesson_file
from lib_dlhpc.explore.blocks.figure import Figure
from lib_dlhpc.explore.blocks.lesson import Lesson, check_of
from lib_dlhpc.explore.blocks.question import Place
from lib_dlhpc.explore.course import PATH, RECORDED

PAGES = Path(lesson_file.__file__).parents[1]


def test_a_guess_is_final_and_stands_beside_the_result():
    lesson = Lesson()
    card = lesson.predict("How many?", 90.0, "%", "So it is.", then=ipywidgets.Label("the chart"))
    said = card.question.answer("50%")
    assert said["words"] == "You said 50%; it is 90%. Your guess is 40 points too low. So it is."
    assert said["bars"] == [["your guess", 50.0, "50%"], ["result", 90.0, "90%"]]
    assert said["final"] and said["right"] is False
    assert card.question.answer("90%") == said and len(lesson.guesses) == 1


def test_a_question_may_be_skipped_and_is_no_guess_then():
    lesson = Lesson()
    said = lesson.predict("How many?", 90.0, "%", "So it is.").question.answer("")
    assert (said["words"], said["right"], said["final"]) == ("It is 90%. So it is.", None, True)
    assert not lesson.guesses


@pytest.mark.parametrize("nonsense", ["many", "%", "1 2", "nan"])
def test_what_is_no_number_is_reported_and_reveals_nothing(nonsense):
    lesson = Lesson()
    said = lesson.predict("How many?", 90.0, "%").question.answer(nonsense)
    assert said["right"] is False and not said["final"] and "90" not in said["words"]
    assert said["words"] == f"{nonsense!r} is not a number in %. Type digits, as in 2.5 or 1e6."
    assert not lesson.guesses


@pytest.mark.parametrize("text", ["85,2", "85,2%", "1,000"])
def test_a_comma_is_refused_with_a_hint(text):
    said = Lesson().predict("How many?", 85.2, "%").question.answer(text)
    assert "use a point" in said["words"] and text in said["words"] and not said["final"]


def test_the_result_is_computed_only_when_the_guess_is_made():
    asked = []
    card = Lesson().predict("How many?", lambda: asked.append(1) or 3.0)
    assert not asked
    assert card.question.answer("3.1")["right"]
    assert asked == [1]


def test_a_choice_needs_to_be_one():
    lesson = Lesson()
    card = lesson.predict_choice("Which?", ("ring", "tree"), lambda: "tree", "Because.")
    assert card.question.answer("star")["words"] == "Choose one of: ring, tree."
    assert card.question.answer("ring")["words"] == "You said ring; it is tree. Because."
    assert lesson.guesses[0].surprise == float("inf")


def test_each_answer_of_a_check_has_its_own_feedback_and_may_be_tried_again():
    question = Lesson().choose("Which?", {"a": "No.", "b": "Yes."}, right="b").question
    assert question.answer("a") == {"right": False, "words": "No.", "final": False, "answer": "a"}
    assert question.answer("b") == {"right": True, "words": "Yes.", "final": True, "answer": "b"}
    with pytest.raises(SpecError, match="expected one of a, b"):
        Lesson().choose("Which?", {"a": "", "b": ""}, right="c")


def test_a_computed_answer_has_a_tolerance_and_a_hint():
    question = Lesson().compute("How long?", 2.0, "ms", hint="Count both ways.").question
    assert question.answer("1")["words"] == "Too small, by a factor of about 2."
    assert question.answer("long")["right"] is False
    assert question.answer("4 ms")["words"].endswith("about 2. Count both ways.")
    assert question.answer("2.01 ms")["words"] == "Yes: 2 ms."


def test_a_step_shows_its_answer_beside_the_notes_of_the_visitor():
    card = Lesson().steps(("Double the batch.", lambda: "It fits."), ("Halve it.", "Faster."))
    first, second = (step.question for step in card.children)
    assert first.answer("it fits?")["words"] == "It fits." and first.verdict["answer"] == "it fits?"
    assert second.verdict == {}
    assert card.plain_text().splitlines() == [
        "- Double the batch.",
        "It fits.",
        "- Halve it.",
        "Faster.",
    ]


def test_surprises_come_with_the_largest_first_and_fill_as_guesses_come():
    lesson = Lesson()
    table = lesson.surprises()
    assert "No guesses yet" in table.value
    lesson.predict("small?", 1.0).question.answer("1.1")
    lesson.predict("large <?", 100.0).question.answer("1")
    assert table.value.index("large &lt;?") < table.value.index("small?")
    assert "a factor of 100" in table.value and "close" in table.value


@pytest.mark.parametrize(
    ("guess", "unit", "words"),
    [
        ("90", "", ""),
        ("45", "", "Your guess is too low by a factor of 2."),
        ("108", "ms", "Your guess is 20% too high."),
        ("900", "", "Your guess is too high by a factor of 10."),
        ("4.5", "", "Your guess is too low by a factor of 20."),
        ("89", "%", "Your guess is 1 point too low."),
        ("-3", "", ""),
        ("1e12", "", "Your guess is too high by a factor of more than a million."),
    ],
)
def test_a_guess_of_a_number_is_answered_by_how_far_it_is_off(guess, unit, words):
    value = 0.09 if unit == "ms" else 90.0
    said = Lesson().predict("How many?", value, "s" if unit == "ms" else unit, "So it is.")
    answer = said.question.answer(f"{guess} {unit}".strip())["words"]
    assert answer.endswith(
        f". {words} So it is." if words else f"{answer.split('. ')[0]}. So it is."
    )


class Anything:
    """A number of a lesson, whatever its format."""

    def __format__(self, spec):
        return "7"


class Numbers(dict):
    """The numbers of a lesson, none of which is computed."""

    def __missing__(self, key):
        return Anything()


LESSONS = sorted(
    f"lib_dlhpc.explore.{file.parent.name}.questions" for file in PAGES.rglob("lesson.toml")
)


def words_of(part: Any) -> str:
    if isinstance(part, dict):
        return "\n".join(map(words_of, part.values()))
    return "\n".join(map(words_of, part)) if isinstance(part, list) else str(part)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_every_number_that_it_names(name):
    lesson = import_module(name).lesson
    for key, text in lesson.texts.items():
        known = lesson.draws[key](np.random.default_rng(1))[0] if "compute" in text else {}
        named = {field for _, field, _, _ in Formatter().parse(words_of(text)) if field}
        assert named <= set(known) | set(lesson.numbers), key
    guesses = {key for key, text in lesson.texts.items() if "guess" in text}
    assert set(lesson.outcomes) == guesses
    assert set(lesson.draws) == {key for key, text in lesson.texts.items() if "compute" in text}


def figures_of(widget: Any) -> Iterator[Figure]:
    if isinstance(widget, Figure):
        yield widget
    for child in getattr(widget, "children", ()):
        yield from figures_of(child)


KNOWN = [
    (name, key)
    for name in LESSONS
    for key, text in import_module(name).lesson.texts.items()
    if "known" in text
]


@pytest.mark.parametrize(("name", "key"), KNOWN, ids=[key for _, key in KNOWN])
def test_what_is_not_covered_is_in_a_figure_and_is_not_all_of_it(name, key):
    """The first figure of most modules: what the question gives away is a data set, or a value of one."""
    lesson = import_module(name).lesson
    card = lesson.ask(key)
    figures = list(figures_of(card.stage))
    marks = [
        {data, *map(str, row)}
        for figure in figures
        for data, columns in figure.data.items()
        if data not in ("room", "key")
        for row in zip(*columns.values(), strict=True)
    ]
    for known in card.question.known:
        assert any(known in mark for mark in marks), known
    left = [mark for mark in marks if mark.isdisjoint(card.question.known)]
    rows = [sum(len(list(c)) for c in each.data.get("lines", {}).values()) for each in figures]
    assert left or 0 in rows  # of runs that nobody has trained yet


@pytest.mark.parametrize("name", LESSONS)
def test_no_text_that_a_lesson_shows_has_a_number_left_out(name):
    """Questions, options, instructions, answers, feedback to each mistake and hints."""
    own = import_module(name).lesson
    known = {
        key: (lambda text=text: (text.get("options") or [1.0])[0], None)
        for key, text in own.texts.items()
        if "guess" in text
    }
    lesson = replace(own, numbers=Numbers(), outcomes=known, guesses=[])
    for key in lesson.texts:
        asked = lesson.ask(key, 1 if "compute" in lesson.texts[key] else None)
        for card in getattr(asked, "children", ()) if not hasattr(asked, "question") else [asked]:
            question = card.question
            shown = [question.question, question.unit, *question.options]
            shown += [question._judge(option)["words"] for option in question.options]
            if question.kind in ("step", "number"):
                shown.append(question._judge("1")["words"])
            if "compute" in lesson.texts[key]:
                judge = question._judge
                shown += [judge.hint, *(said for _, said in judge.mistakes)]
            assert not any("{" in text or "}" in text for text in shown), (key, shown)


def test_the_place_of_an_answer_tells_nothing():
    """The right answers of all checks are in no place much more often than by chance."""
    places = []
    for name in LESSONS:
        for text in import_module(name).lesson.texts.values():
            if "check" in text:
                card = Lesson().choose(text["check"], dict(text["answers"]), text["right"])
                places.append(card.question.options.index(text["right"]))
                assert sorted(card.question.options) == sorted(dict(text["answers"]))
    assert max(map(places.count, set(places))) < 0.5 * len(places)


def test_the_length_of_an_answer_tells_nothing():
    """Of three answers each is the longest, or the shortest, in a third of the checks by chance; ties count."""
    longest, shortest, checks = [], [], 0
    for name in LESSONS:
        lesson = import_module(name).lesson
        for key, text in lesson.texts.items():
            if "check" in text:
                checks += 1
                right = len(lesson.filled(text["right"]))
                wrong = [len(lesson.filled(a)) for a, _ in text["answers"] if a != text["right"]]
                longest += [f"{name} {key}"] * (right >= max(wrong))
                shortest += [f"{name} {key}"] * (right <= min(wrong))
                assert right <= 1.3 * max(wrong), (name, key)
    assert checks > 40 and len(longest) <= checks / 3, longest
    assert len(shortest) <= checks / 3, shortest


FOLDERS = [
    folder for module in PATH for folder, number in RECORDED.items() if number == module.number
]


@pytest.mark.parametrize("folder", FOLDERS[1:])
def test_a_module_asks_two_checks_of_earlier_modules_again(folder):
    lesson = import_module(f"lib_dlhpc.explore.{folder}.questions").lesson
    recalled = lesson.texts["earlier"]["recall"]
    modules = [check.split(".")[0] for check in recalled]
    assert len(recalled) == 2 and set(modules) <= set(FOLDERS[: FOLDERS.index(folder)])
    for check, card in zip(recalled, lesson.ask("earlier").children, strict=True):
        text = check_of(check)
        assert "{" not in words_of(text), "numbers belong to a module that is not loaded"
        assert card.question.question == text["check"]
        assert card.question.place == Place(folder, f"earlier.{check}", "check")
        wrong = next(answer for answer, _ in text["answers"] if answer != text["right"])
        assert card.question.answer(wrong)["words"] == dict(text["answers"])[wrong]
        assert card.question.answer(text["right"])["right"]


def test_what_is_not_in_a_lesson_is_named_with_what_is():
    lesson = Lesson(
        {"first": {"guess": "How many of {all}?"}}, {"first": (lambda: 3, None)}, numbers={"all": 9}
    )
    with pytest.raises(SpecError, match=r"'second'.*first, problems, surprises"):
        lesson.ask("second")
    assert lesson.ask("first").question.question == "How many of 9?"
