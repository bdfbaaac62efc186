"""A number that is wrong is answered by what went wrong, and the hint waits for the second miss."""

import re
from collections import Counter
from importlib import import_module
from math import isclose
from typing import Any

import numpy as np
import pytest

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import BINARY, FRACTION, PERCENT, TOLERANCE, Numeric, shown
from lib_dlhpc.explore.course import RECORDED
from lib_dlhpc.teaching.problems import OWN, kind_of

MODULES = ["explorer", *RECORDED]
MISTAKES = [(200.0, "Twice. Count one way."), (12.5, "That is in bytes. Count bits.")]


def words(given: float | str, answer: float = 100.0, **more: Any) -> str:
    """The words on a first answer."""
    return Numeric(more.pop("question", "How many?"), answer, **more)(str(given))["words"]


def test_a_number_to_which_a_mistake_leads_gets_its_sentence():
    for wrong in (200, 203, 196.1):
        assert words(wrong, mistakes=MISTAKES) == "Twice. Count one way."
    assert words(195, mistakes=MISTAKES) == "Too large, by a factor of about 2."
    assert words(101.9, mistakes=[(103.0, "Near.")]).startswith("Yes"), "right comes first"
    both = [(103.0, "Three."), (104.0, "Four.")]
    assert (words(103.2, mistakes=both), words(103.9, mistakes=both)) == ("Three.", "Four.")


def test_what_is_named_comes_before_what_is_usual():
    assert words(12.5, unit="B", mistakes=MISTAKES) == "That is in bytes. Count bits."


def test_the_hint_comes_with_the_second_miss_and_the_same_number_is_no_second():
    judge = Numeric("How many?", 100.0, hint="By a formula.", mistakes=MISTAKES)
    assert judge("50")["words"] == judge("50")["words"] == "Too small, by a factor of about 2."
    assert judge("200")["words"] == "Twice. Count one way. By a formula."
    assert judge("200")["words"].endswith("By a formula.") and not judge("200")["final"]
    assert judge("100")["right"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (110, "Too large, by less than a factor of 1.5."),
        (70, "Too small, by less than a factor of 1.5."),
        (160, "Too large, by a factor of about 2."),
        (28, "Too small, by a factor of about 5."),
        (7.2, "Too small, by a factor of about 10."),
        (1_900, "Too large, by a factor of about 20."),
        (2e7, "Too large, by a factor of about 200,000."),
        (1e12, "Too large, by more than a factor of a million."),
        (0, "Too small."),
        (-100, "Too small."),
    ],
)
def test_the_first_miss_says_how_far_off_it_is(given, said):
    assert words(given) == said


def test_how_far_off_does_not_give_the_answer_away():
    """To divide by the factor that was named is no way to be right."""
    answers, hits = np.geomspace(1.7, 9_000, 400), 0
    for answer in answers:
        said = words(1, float(answer))
        factor = re.search(r"about ([\d,]+)", said)
        hits += bool(factor and isclose(float(factor[1].replace(",", "")), answer, rel_tol=0.02))
    assert hits < 0.1 * len(answers)


def test_mistakes_with_units_need_no_name():
    assert words(0.25, 25.0, unit="%") == FRACTION and words(25, 0.25) == PERCENT
    for unit, question in (("GB", "How large?"), ("s", "How long?"), ("", "2 Gb/s. How many?")):
        assert words(800, unit=unit, question=question).startswith("8 times too large: 8 bits")
        assert words(12.5, unit=unit, question=question).startswith("8 times too small: 8 bits")
    assert words(800, unit="times").startswith("Too large, by a factor of about 10")
    for power in (1, 2, 3):
        assert words(100 * 1.024**power, unit="GB") == BINARY
    for factor in (1e3, 1e6, 1e9):
        assert f"a factor of {factor:,.0f}: check the prefixes" in words(100 * factor)
        assert words(100 / factor).startswith("Too small by")
    for factor in (60, 3600):
        assert "convert seconds, minutes" in words(100 * factor, unit="min")
    assert "check the prefixes" in words("12", 0.012, unit="s")


def drawn(name: str) -> list[tuple[str, dict[str, Any], list[Any]]]:
    """The computed questions of a module: name, table, and what 200 learners have."""
    lesson = import_module(f"lib_dlhpc.explore.{name}.questions").lesson
    return [
        (key, lesson.texts[key], [draw(np.random.default_rng(seed)) for seed in range(200)])
        for key, draw in lesson.draws.items()
    ]


def near(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=TOLERANCE)


@pytest.mark.parametrize("name", MODULES)
def test_each_computed_question_names_mistakes_that_lead_elsewhere(name):
    """Numbers that a learner draws may bring two of them together by chance; most do not."""
    for key, text, learners in drawn(name):
        met, apart = Counter(), Counter()
        for _, answer, wrong in learners:
            for mistake, value in wrong.items():
                others = [answer, *(each for other, each in wrong.items() if other != mistake)]
                met[mistake] += 1
                apart[mistake] += not any(near(value, other) for other in others)
        assert set(met) == set(text["mistakes"]), key
        for mistake in met:
            assert apart[mistake] >= 0.95 * met[mistake], (key, mistake)


@pytest.mark.parametrize("name", MODULES)
def test_who_makes_a_mistake_reads_what_to_do_and_not_the_answer(name):
    lesson = import_module(f"lib_dlhpc.explore.{name}.questions").lesson
    for key, text, learners in drawn(name):
        for seed, (own, answer, wrong) in enumerate(learners[:20]):
            card = lesson.ask(key, seed=seed)
            clear = [each for each in wrong if not near(wrong[each], answer)]
            for mistake in clear:
                said = text["mistakes"][mistake].format(**own)
                got = lesson.ask(key, seed=seed).question.answer(repr(float(wrong[mistake])))
                assert not got["right"]
                if sum(near(wrong[mistake], wrong[other]) for other in clear) == 1:
                    assert got["words"] == said
                figure = shown(answer, "").replace(",", "")
                assert not re.search(rf"(?<![\w.]){re.escape(figure)}(?![\w.])", said), (key, said)
                assert len(said) <= 160 and re.search(r"[.:] .+\.$", said), said
            assert card.question.answer(repr(float(answer)))["right"]


def test_a_step_of_a_problem_that_is_given_as_its_answer_is_named():
    practice = Lesson(module="serving").ask("problems")
    practice.button.click()
    found = import_module("lib_dlhpc.explore.serving.problems").PROBLEMS
    for place, (problem, column) in enumerate(zip(found, practice.children, strict=True), 1):
        if kind_of(place, problem) != OWN:
            continue
        *before, last = problem.steps
        asked = column.children[1].question
        for step in before:
            if step.unit == last.unit and not near(step.value, last.value):
                traps = (trap.said for trap in problem.traps if near(trap.value, step.value))
                assert next(traps, step.do) in asked.answer(repr(step.value))["words"]
