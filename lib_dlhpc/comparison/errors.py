"""Errors of several comparisons, and how many measured steps lie within the bands."""

from collections.abc import Sequence

from lib_dlhpc.comparison.comparison import Comparison
from lib_dlhpc.prediction.measured.bands import ALL


def errors(comparisons: Sequence[Comparison], way: str) -> list[float]:
    """Return |error| of the step by that way, of each comparison that has it."""
    found = [comparison.error(way, ALL) for comparison in comparisons]
    return [abs(error) for error in found if error is not None]


def inside(comparisons: Sequence[Comparison], way: str = "predicted") -> tuple[int, int]:
    """Return how many measured steps lie within the way's bands, and how many have a band."""
    held = [comparison.inside(way) for comparison in comparisons]
    return sum(1 for each in held if each), sum(1 for each in held if each is not None)
