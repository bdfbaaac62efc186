"""Laws of a formula's comparison: the nearest mistake is named, and what returns nothing is said to."""

import re

import pytest

from lib_dlhpc.labs.formula_cases import Case, compared
from lib_dlhpc.labs.fuse_attention.time_laws import time_findings, timed_of
from lib_dlhpc.labs.serve_the_model.formulas import cache_finding, step_findings
from lib_dlhpc.labs.serve_the_model.tasks import tasks_of
from lib_dlhpc.labs.size_and_fit.size_laws import size_findings, sized_of
from lib_dlhpc.labs.size_and_fit.tuning_laws import tuned_of, tuning_findings
from lib_dlhpc.labs.survive.checkpoint_interval import formula_findings, task_of


def judged(value):
    slips = [("first", 50.0), ("second", 50.1), ("beyond all numbers", 1e300)]
    case = Case("A case", (1,), 100.0, slips, "no mistake gives that")
    return compared("law", lambda x: value, [case], "fine").words


def test_of_two_mistakes_that_come_to_nearly_the_same_the_nearest_is_named():
    assert "first" in judged(50.01) and "second" in judged(50.09)
    assert "no mistake gives that" in judged(70.0) and judged(100.0) == "fine"


def test_a_number_below_zero_is_right_within_the_same_share():
    case = Case("A case", (), -100.0, [])
    assert compared("law", lambda: -100.01, [case], "fine").words == "fine"
    assert compared("law", lambda: -120.0, [case], "fine").words != "fine"


def test_a_formula_without_a_return_is_said_to_be_one():
    assert "returns nothing. Is a `return` missing?" in judged(None)
    assert "returns a value of type str: expected a number." in judged("much")


def test_what_is_not_finite_is_not_said_to_be_too_much():
    for value in (float("nan"), float("inf"), -float("inf")):
        assert f"returns {value}: expected a finite number." in judged(value)


def unlike(*given):
    """A value that no mistake gives."""
    return 1.234e33


FORMULAS = {
    "06_fit_the_model": lambda own: own.formulas_findings(unlike, unlike, unlike, "x"),
    "08_survive": lambda own: formula_findings(unlike, unlike, task_of(1))[:2],
    "11_serve_the_model": lambda own: [
        *step_findings(unlike, tasks_of(1)[0]),
        cache_finding(unlike, tasks_of(1)[0]),
    ],
    "14_fuse_attention": lambda own: time_findings(lambda *_: (1e33, 1e33), unlike, timed_of(1)),
    "15_size_and_fit": lambda own: [
        *tuning_findings(unlike, unlike, unlike, unlike, tuned_of(1)),
        size_findings(unlike, unlike, sized_of(1))[0],
    ],
}


@pytest.mark.parametrize("lab", FORMULAS)
def test_a_value_that_no_mistake_gives_leads_on(checks, lab):
    for finding in FORMULAS[lab](checks(lab)):
        assert finding.right is False
        after = re.split("is too much[.] ?", finding.words.partition(" The call: ")[0])[-1]
        assert len(after) > 20, finding
