"""The number of each wrong option follows from the misconception that is named, and the text of its item."""

import mistakes_01_to_06
import mistakes_07_to_13
import pytest

from lib_dlhpc.explore.course import PATH
from lib_dlhpc.teaching.numbers import PRINTED, in_si, value

SEEDS = range(6)
MISTAKES = mistakes_01_to_06.MISTAKES | mistakes_07_to_13.MISTAKES
OF_THE_LIBRARY = {  # with numbers that the text does not give
    ("02", "end of strong scaling"),
    ("04", "more rows"),
    ("05", "share of a halo"),
    ("07", "best policy"),
    ("09", "which interval"),
}
ROUNDED = 0.045  # less than the distance of two options


def numbers(text):
    """Return all numbers of a text, in SI units; a percentage as it is."""
    return [in_si(each, "" if unit == "%" else unit) for each, unit in PRINTED.findall(text)]


@pytest.mark.parametrize("module", PATH, ids=lambda module: module.name)
def test_a_wrong_number_follows_from_its_misconception(questions, module):
    for seed in SEEDS:
        for item in questions(module.name, seed):
            named = {reason: value(option) for option, reason in item.wrong.items()}
            for reason, formula in MISTAKES.get((module.number, item.name), {}).items():
                found = formula(numbers(item.text))
                assert named[reason] == pytest.approx(found, rel=ROUNDED), (item.name, seed, reason)


def test_each_number_has_a_misconception_that_computes_it(questions):
    for module in PATH:
        for item in questions(module.name):
            known = MISTAKES.get((module.number, item.name), {})
            if value(item.right) is None or (module.number, item.name) in OF_THE_LIBRARY:
                continue
            for option, reason in item.wrong.items():
                assert value(option) is None or reason in known, (module.number, item.name, reason)
