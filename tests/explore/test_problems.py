"""At least four problems for each module, whose steps by hand end at what the library says."""

import ast
import re
from importlib import import_module
from itertools import combinations
from math import isclose
from pathlib import Path

import pytest

from lib_dlhpc.explore.blocks.lesson import Lesson
from lib_dlhpc.explore.blocks.numeric import TOLERANCE
from lib_dlhpc.explore.course import RECORDED
from lib_dlhpc.teaching.numbers import on_page, printed
from lib_dlhpc.teaching.problems import FADED, OWN, PAGE, SI, WORKED, answers, kind_of, version
from lib_dlhpc.teaching.questions import Draw

TOPICS = {"failures": 3}  # with a worked problem; two in all other modules
UNITS = {*SI, "", "%", "s/B", "FLOP/B", "samples/s", "points", "MWh"}


def problems(name):
    return import_module(f"lib_dlhpc.explore.{name}.problems").PROBLEMS


@pytest.mark.parametrize("name", RECORDED)
def test_the_steps_end_at_the_answer_of_the_library(name):
    for problem in problems(name):
        last = problem.steps[-1]
        assert isclose(last.value, problem.answer, rel_tol=1e-3), (
            problem.title,
            last,
            problem.answer,
        )


@pytest.mark.parametrize("name", RECORDED)
def test_a_page_has_a_worked_a_faded_and_at_least_two_blank_problems(name):
    found = problems(name)
    assert len({problem.title for problem in found}) == len(found) >= 4
    assert all(len(problem.steps) >= 2 for problem in found[:2]), "nothing to leave out"
    assert {step.unit for problem in found for step in problem.steps} <= UNITS


@pytest.mark.parametrize("name", RECORDED)
def test_a_module_has_at_least_five_blank_problems(name):
    kinds = [kind_of(number, each) for number, each in enumerate(problems(name), 1)]
    six = ("allreduce", "model_parallel", "failures", "traces", "language_model", "serving")
    assert kinds.count(OWN) >= (6 if name in six else 5)


@pytest.mark.parametrize("name", RECORDED)
def test_a_worked_problem_is_followed_by_a_faded_and_a_blank_one(name):
    kinds = [kind_of(number, each) for number, each in enumerate(problems(name), 1)]
    topics = [at for at, kind in enumerate(kinds) if kind == WORKED]
    assert all(kinds[at : at + 3] == [WORKED, FADED, OWN] for at in topics)
    assert len(topics) == kinds.count(FADED) == TOPICS.get(name, 2)


@pytest.mark.parametrize("name", RECORDED)
def test_a_module_asks_for_the_mistake_in_a_plan(name):
    titles = [problem.title for problem in problems(name) if problem.traps]
    assert any(title.startswith("Find the mistake") for title in titles), titles


@pytest.mark.parametrize("name", RECORDED)
def test_no_result_of_several_digits_is_printed_on_the_page(repository, name):
    """A learner could copy it."""
    number = RECORDED[name]
    (page,) = (repository / "modules").glob(f"{number}_*.ipynb")
    for place, problem in enumerate(problems(name), 1):
        result = problem.steps[-1].result
        if kind_of(place, problem) != WORKED and len(re.sub(r"\D", "", result.lstrip("0."))) > 2:
            assert not printed(result) & on_page(page), problem.title


def test_a_trap_is_answered_by_its_misconception_and_is_not_the_result():
    found = [(name, each) for name in RECORDED for each in problems(name) if each.traps]
    assert len(found) >= 15
    for name, problem in found:
        file = import_module(f"lib_dlhpc.explore.{name}.problems").__file__
        for draw in (PAGE, *(Draw(seed, name) for seed in range(1, 9))):
            (own,) = (each for each in version(file, draw) if each.title == problem.title)
            wrong = [trap.value for trap in own.traps]
            assert not any(isclose(own.answer, each, rel_tol=2 * TOLERANCE) for each in wrong)
            for one, other in combinations(wrong, 2):
                assert not isclose(one, other, rel_tol=TOLERANCE), (own.title, wrong)
            assert all(trap.said in answers("", [own]) for trap in own.traps)


@pytest.mark.parametrize(("name", "at"), [("traces", 5), ("serving", -1)])  # one is a step as well
def test_a_page_answers_a_trap(name, at):
    practice = Lesson(module=name).ask("problems")
    practice.button.click()
    place, problem = [pair for pair in enumerate(problems(name)) if pair[1].traps][at]
    card = practice.children[place].children[1].question
    for trap in problem.traps:
        assert card.answer(f"{trap.value:.6g}")["words"].startswith(trap.said)


@pytest.mark.parametrize("name", RECORDED)
def test_the_result_is_not_in_the_text(name):
    """A problem whose text has its answer is none."""
    for problem in problems(name):
        shown = rf"(?<![\w.,]){re.escape(problem.steps[-1].result)}(?![\w.,])"
        assert not re.search(shown, problem.text), problem.title


@pytest.mark.parametrize("name", RECORDED)
def test_other_versions_have_other_numbers_that_the_library_answers(name):
    file = import_module(f"lib_dlhpc.explore.{name}.problems").__file__
    versions = [version(file, Draw(seed, name)) for seed in range(1, 9)]
    for problem in (problem for found in versions for problem in found):
        last = problem.steps[-1]
        assert isclose(last.value, problem.answer, rel_tol=1e-3), (problem.title, last)
        shown = rf"(?<![\w.,]){re.escape(last.result)}(?![\w.,])"
        assert not re.search(shown, problem.text), (problem.title, last)
    results = [[problem.steps[-1].result for problem in found] for found in versions]
    assert len({tuple(found) for found in results}) >= 4
    assert sum(len(set(each)) > 1 for each in zip(*results, strict=True)) >= 2


def test_the_page_has_the_first_of_each_case():
    file = import_module("lib_dlhpc.explore.allreduce.problems").__file__
    assert [*map(vars, version(file, PAGE))] == [*map(vars, problems("allreduce"))]


@pytest.mark.parametrize("name", RECORDED)
def test_a_file_computes_no_number_that_nothing_names(name):
    """The reader of problems.toml refuses unused numbers of a problem; these are those of the file."""
    file = Path(import_module(f"lib_dlhpc.explore.{name}.problems").__file__)
    tree = ast.parse(file.read_text("utf-8"))
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    computed = {node.id for node in names if isinstance(node.ctx, ast.Store)} - {"PROBLEMS"}
    texts = set(re.findall(r"\w+", file.with_suffix(".toml").read_text("utf-8")))
    assert computed <= read | texts


@pytest.mark.parametrize("name", RECORDED)
def test_a_page_shows_them_after_a_click_and_takes_the_answers_of_the_library(name):
    practice = Lesson(module=name).ask("problems")
    practice.button.click()
    cards, steps = [], []
    for number, (part, problem) in enumerate(
        zip(practice.children, problems(name), strict=True), 1
    ):
        kind = kind_of(number, problem)
        assert kind == {1: WORKED, 2: FADED}.get(number, kind)
        if kind == WORKED:
            assert all(step.result in part.value for step in problem.steps)
            continue
        cards += [card.question for card in part.children[1:]]
        steps += problem.steps[1:] if kind == FADED else problem.steps[-1:]
    assert len({card.place for card in cards}) == len(cards) == len(steps)
    for card, step in zip(cards, steps, strict=True):
        assert card.place.module == name and not card.answer("7e-30")["right"]
        assert card.answer(step.result.replace(",", ""))["right"], step  # nothing between thousands


def test_a_prefix_and_a_plain_number_are_the_same_answer():
    for text in ("12 ms", "0.012", "0.012 s"):
        assert Lesson().compute("How long?", 0.012, "s").question.answer(text)["right"]
    assert Lesson().compute("How long?", 0.012, "s").question.answer("12")["right"] is False
