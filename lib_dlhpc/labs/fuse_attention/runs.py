"""A learner's kernel on a fresh chip, and what its numbers look like beside the right ones."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.labs.fuse_attention.chip import Chip, Matrix
from lib_dlhpc.labs.mistakes import explained
from lib_dlhpc.layers.base.saved import Array

NEAR = 1e-12  # of the largest number, in float64: sums of the same numbers in another order
ALIKE = 1e-9  # of a known mistake
EMPTY = -1.25e99  # what no kernel writes
Kernel = Callable[..., Any]
Slips = Iterable[tuple[str, Array]]  # the hint at a mistake, and the numbers that it gives


def run(
    kernel: Kernel,
    room: int,
    inputs: dict[str, Array],
    outputs: dict[str, tuple[int, int]],
    *more: Any,
) -> tuple[Chip, dict[str, Array]]:
    """Return the chip and the outputs after kernel(chip, *inputs, *outputs, *more). Raises LabError where it stops.

    Outputs are EMPTY until they are written.
    """
    chip = Chip(room)
    given = [Matrix(name, numbers.copy(), constant=True) for name, numbers in inputs.items()]
    made = {name: Matrix(name, np.full(shape, EMPTY)) for name, shape in outputs.items()}
    with explained(kernel.__name__):
        kernel(chip, *given, *made.values(), *more)
    return chip, {name: each.numbers for name, each in made.items()}


def off(name: str, found: Array, right: Array, slips: Slips = (), hint: str = "") -> str:
    """Return how an output differs from the right one, in words; empty if it does not.

    slips: what mistakes give; hint: where none of them does.
    """
    scale = float(np.max(np.abs(right)))
    wrong = ~(np.abs(found - right) <= NEAR * scale)
    if not wrong.any():
        return ""
    for words, numbers in slips:
        if np.all(np.abs(found - numbers) <= ALIKE * scale):
            return words
    row, column = map(int, np.argwhere(wrong)[0])
    rows, columns = (np.flatnonzero(wrong.any(axis=axis)) for axis in (1, 0))
    missing = edge_missing(found)
    if missing:
        return f"{missing} of {name} {'is' if ' 1 ' in missing else 'are'} never written."
    where = (
        f"{name}[{row}, {column}] is {found[row, column]:.6g}; {right[row, column]:.6g} is right"
    )
    many = f" ({len(rows)} of {len(right)} rows and {len(columns)} of {right.shape[1]} columns are off)"
    return f"{where}{many}. {hint}".strip()


def edge_missing(found: Array) -> str:
    """Return which rows or columns are still as they were before the run, in words; empty if none are."""
    gaps = found == EMPTY
    for what, axis in (("row", 1), ("column", 0)):
        whole = np.flatnonzero(gaps.all(axis=axis))
        if len(whole) == gaps.shape[1 - axis]:
            return "all rows"
        if len(whole) and gaps.sum() == len(whole) * gaps.shape[axis]:
            last = whole[-1] == gaps.shape[1 - axis] - 1
            at = "the last" if last else "the first" if whole[0] == 0 else "some"
            return f"{at} {len(whole)} {what}{'s' * (len(whole) > 1)}"
    return ""


def last_parts(found: Array, parts: Sequence[Array], right: Array) -> int:
    """Return how many of the last parts sum up to what was found, 0 if none: a sum that was begun anew."""
    scale, total = float(np.max(np.abs(right))), np.zeros_like(right)
    for number, part in enumerate(reversed(parts), 1):
        total = total + part
        if number < len(parts) and np.all(np.abs(found - total) <= ALIKE * scale):
            return number
    return 0
