"""Four problems for each module, whose steps by hand end at what the library says."""

import re
from math import isclose

import pytest

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.teaching.problems import SI
from lib_dlhpc.teaching.questions import read

NAMES = [module.name for module in PATH]
UNITS = {*SI, "", "%", "s/B", "FLOP/B", "samples/s", "points", "MWh"}


@pytest.fixture
def problems(repository):
    return lambda name: read(
        repository / "instructor_notes" / "problems" / f"{name}.py", "PROBLEMS"
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_steps_end_at_the_answer_of_the_library(problems, name):
    for problem in problems(name):
        last = problem.steps[-1]
        assert isclose(last.value, problem.answer, rel_tol=1e-3), (
            problem.title,
            last,
            problem.answer,
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_a_worked_a_faded_and_two_blank_problems(problems, name):
    found = problems(name)
    assert len({problem.title for problem in found}) == len(found) == 4
    assert all(len(problem.steps) >= 2 for problem in found[:2]), "nothing to leave out"
    assert {step.unit for problem in found for step in problem.steps} <= UNITS


@pytest.mark.parametrize("name", NAMES)
def test_the_result_is_not_in_the_text(problems, name):
    """A problem whose text has its answer is none."""
    for problem in problems(name):
        shown = rf"(?<![\w.,]){re.escape(problem.steps[-1].result)}(?![\w.,])"
        assert not re.search(shown, problem.text), problem.title
