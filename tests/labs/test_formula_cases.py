"""Laws of a formula's comparison: the nearest mistake is named, and what returns nothing is said to."""

from lib_dlhpc.labs.formula_cases import Case, compared


def judged(value):
    slips = [("first", 50.0), ("second", 50.1), ("beyond all numbers", 1e300)]
    case = Case("A case", (1,), 100.0, slips, "no mistake gives that")
    return compared("law", lambda x: value, [case], "fine").words


def test_of_two_mistakes_that_come_to_nearly_the_same_the_nearest_is_named():
    assert "first" in judged(50.01) and "second" in judged(50.09)
    assert "no mistake gives that" in judged(70.0) and judged(100.0) == "fine"


def test_a_formula_without_a_return_is_said_to_be_one():
    assert "returns nothing. Is a `return` missing?" in judged(None)
    assert "returns a value of type str: expected a number." in judged("much")


def test_what_is_not_finite_is_not_said_to_be_too_much():
    for value in (float("nan"), float("inf"), -float("inf")):
        assert f"returns {value}: expected a finite number." in judged(value)
