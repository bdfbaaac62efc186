"""Answers of the problems, computed once more: from the numbers that their text gives, without the library."""

from importlib import import_module

import problems_01_to_07
import problems_08_to_11
import problems_12_to_13
import pytest
from exam_numbers import given

from lib_dlhpc.explore.course import RECORDED
from lib_dlhpc.teaching.numbers import PRINTED, in_si
from lib_dlhpc.teaching.problems import PAGE, version
from lib_dlhpc.teaching.questions import Draw

BY_HAND = problems_01_to_07.BY_HAND | problems_08_to_11.BY_HAND | problems_12_to_13.BY_HAND
ROUNDED = 0.0025  # of the numbers in a text


@pytest.mark.parametrize("name", RECORDED)
def test_the_answers_follow_from_the_numbers_of_the_texts(name: str) -> None:
    file = import_module(f"lib_dlhpc.explore.{name}.problems").__file__
    for draw in (PAGE, *(Draw(seed, "by hand") for seed in range(1, 9))):
        text, done = "", set()
        for problem in version(file, draw):
            text = f"{problem.text} {text}"  # "the same" are the numbers of an earlier problem
            title = next(t for t in (problem.title, "FSDP behind") if t in BY_HAND[name])
            formula, *pieces = BY_HAND[name][title]
            numbers = given(text, *pieces) if pieces else listed(problem.text)
            own = formula(*numbers)
            assert own == pytest.approx(problem.answer, rel=ROUNDED), (title, problem.text)
            done.add(title)
        assert done == set(BY_HAND[name]), name


def listed(text: str) -> list[float]:
    """Return all numbers of a text, in SI units."""
    return [in_si(number, unit) for number, unit in PRINTED.findall(text)]
