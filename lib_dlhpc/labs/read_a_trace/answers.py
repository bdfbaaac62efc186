"""What a learner's function returns, as numbers of a known shape; and what wrong numbers look like."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.labs.mistakes import LabError, explained
from lib_dlhpc.spec.units import format_quantity

# what float and int raise: text, nan, inf, 10**400
NOT_NUMBERS = (TypeError, ValueError, OverflowError)
MOST = 10_000  # values that a function yields; a path has some hundred pieces
Slips: TypeAlias = Iterable[tuple[str, Any]]  # the hint at a mistake, and the numbers that it gives
EXACT = 1e-6  # of the run's time: sums of the same numbers in another order
ALIKE = 1e-3  # of the run's time: what a mistake gives


def answer(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a learner's function returns, a list of what it yields. Raises LabError where it stops, or
    returns nothing, or yields without end.
    """
    with explained(function.__name__):
        found = function(*arguments)
        if isinstance(found, Iterator):
            found = list(islice(found, MOST + 1))
            if len(found) > MOST:
                raise LabError(
                    f"{function.__name__} yields more than {MOST} values: does it ever end?"
                )
    if found is None:
        raise LabError(f"{function.__name__} returns nothing. Is a `return` missing?")
    return found


def numbers(found: Any, shape: tuple[int, ...], what: str) -> Floats:
    """Return an answer as an array. what: what it has to be. Raises LabError if it is not."""
    try:
        raw = np.array(found)
        if raw.dtype.kind not in "iufO":  # text and bools that numpy would take for numbers
            raise TypeError
        array = raw.astype(np.float64)
    except NOT_NUMBERS:
        raise LabError(f"expected {what}, not {short(found)}.") from None
    if array.shape != shape:
        raise LabError(f"expected {what}, of shape {shape}; its shape is {array.shape}.")
    if not np.isfinite(array).all():
        raise LabError(f"expected {what}; some of them are not finite.")
    return array


def number_of(value: Any) -> float:
    """Return a finite number. Raises one of NOT_NUMBERS for anything else, text and bools included."""
    if isinstance(value, str | bytes | bool | np.bool_) or not np.isfinite(found := float(value)):
        raise ValueError
    return found


def rank_of(value: Any) -> int:
    """Return a whole number. Raises one of NOT_NUMBERS for anything else."""
    found = number_of(value)
    if not found.is_integer():
        raise ValueError
    return int(found)


def short(found: Any, room: int = 60) -> str:
    """Return an answer as text of at most `room` characters; its type where Python does not write it out."""
    try:
        return str(found)[:room]
    except ValueError:  # a whole number of thousands of digits
        return f"a {type(found).__name__} that is too long to show"


def like(found: Floats, slips: Slips, near: float) -> str:
    """Return the hint of the mistake whose numbers are nearest to those found, empty if none is within `near`."""
    best, words = near, ""
    for hint, wrong in slips:
        off = float(np.max(np.abs(found - np.asarray(wrong))))
        if off <= best:
            best, words = off, hint
    return words


def seconds(value: float) -> str:
    """Return seconds in words."""
    return format_quantity(float(value), "s") if value else "0 s"
