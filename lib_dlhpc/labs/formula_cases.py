"""A learner's formula compared with the library's, case by case; a wrong value is matched with classic mistakes."""

from collections.abc import Callable, Iterable
from math import isfinite
from types import FunctionType
from typing import Any, NamedTuple

from lib_dlhpc.labs.findings import Finding, broken, kept
from lib_dlhpc.labs.mistakes import LabError, explained
from lib_dlhpc.spec.units import format_quantity as show

CLOSE = 0.01  # relative tolerance of a formula
Slips = Iterable[tuple[str, float]]  # the hint at a mistake, and the value that the mistake gives


class Case(NamedTuple):
    """A formula's arguments, what is right, what mistakes give, and words for a value that no mistake gives.

    least: what a value may be off in any case, in its own unit.
    """

    about: str
    arguments: tuple[Any, ...]
    right: float
    slips: Slips
    hint: str = ""
    least: float = 0.0


def value_of(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the number that a learner's formula gives. Raises LabError where it gives none."""
    words = called(function, arguments)
    with explained(words):
        value = function(*arguments)
    if value is None:
        raise LabError(f"{words} returns nothing. Is a `return` missing?")
    try:
        number = float(value)
    except Exception:
        kind = type(value).__name__
        raise LabError(f"{words} returns a value of type {kind}: expected a number.") from None
    if not isfinite(number):
        raise LabError(f"{words} returns {number}: expected a finite number.")
    return number


def one_term(
    name: str, function: Callable[..., Any], term: str, terms: Iterable[str], what: str
) -> Callable[..., Any]:
    """Return what gives one of a learner's terms, where their function gives {term: what} with all of them.

    name: of the learner's function. Calls raise LabError where it gives no such dict.
    """

    def own(*given: Any) -> Any:
        found = function(*given)
        if not isinstance(found, dict) or term not in found:
            legal = ", ".join(map(repr, terms))
            raise LabError(f"{name} returns {{term: {what}}} with the terms {legal}.")
        return found[term]

    own.__name__ = name
    return own


def called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Return a call as text; a record, such as a storage tier, by its class alone, a function by its name."""
    return f"{function.__name__}({', '.join(map(_argument, arguments))})"


def _argument(each: Any) -> str:
    text = each.__name__ if isinstance(each, FunctionType) else repr(each)
    return text if len(text) < 80 else type(each).__name__


def compared(
    law: str,
    function: Callable[..., Any],
    cases: Iterable[Case],
    words: str,
    near: float = CLOSE,
    unit: str = "",
) -> Finding:
    """Return whether a formula gives what is right, to `near`; else what it looks like. unit: of what it gives."""
    for about, arguments, right, slips, hint, least in cases:
        try:
            found = value_of(function, *arguments)
        except LabError as error:
            return broken(law, f"{about}: {error}")
        if abs(found - right) > max(near * abs(right), least):
            like = [slip for slip in slips if abs(found - slip[1]) <= near / 2 * abs(slip[1])]
            # Two mistakes may come to nearly the same: the one that was made is the nearest.
            nearest = min(like, key=lambda slip: abs(found - slip[1]), default=(hint, right))[0]
            size = "much" if found > right else "little"
            given = show(found, unit) if unit else f"{found:.4g}"
            words = f"{about}: {given} is too {size}. {nearest}".strip()
            if all(_argument(each) == type(each).__name__ for each in arguments):
                return broken(law, words)  # the call would say nothing more
            return broken(law, f"{words} The call: {called(function, arguments)}.")
    return kept(law, words)
