"""Robust numbers from noisy repeats: the calmer half counts; fits of least relative error; 90 % intervals.

An interval holds what resampled fits say (repeats and points drawn anew: Efron 1979), and beside it how far single
points lie from the fit: a prediction meets one size, not the mean of all.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.calibration.fit import least_error

TRIES = 60
LOW, HIGH = 0.05, 0.95
SHARE = 0.3  # of the calm repeats lie below what is taken: others only ever make it longer
Floats = Any


def calm(loads: Sequence[float] | Floats) -> Floats:
    """Return which repeats count: those in which others had least of the cores, half of them or more."""
    return np.asarray(loads) <= np.median(loads)


def typical(seconds: Floats) -> float:
    """Return what one of the calm repeats takes."""
    return float(np.quantile(seconds, SHARE))


class Points:
    """Points of one law: terms @ x = seconds; terms: (points, unknowns), seconds: (points, repeats)."""

    def __init__(
        self,
        terms: Floats,
        seconds: Floats,
        known: Floats | float = 0.0,
        counts: Floats | float = 1.0,
    ) -> None:
        """known: s of each point that the law is not about, and that are taken off. counts: what its error is worth."""
        self.terms, self.seconds = np.asarray(terms, float), np.asarray(seconds, float)
        self.known, self.counts = (
            np.broadcast_to(np.asarray(each, float), (len(self.terms),)) for each in (known, counts)
        )

    def fit(self, dice: np.random.Generator | None = None) -> Floats:
        """Return x >= 0 of least relative error; with dice, of points and repeats that are drawn anew."""
        rows = np.arange(len(self.terms))
        seconds = np.quantile(self.seconds, SHARE, axis=1)
        if dice is not None:
            rows = np.sort(dice.integers(0, len(rows), len(rows)))
            seconds = np.array([dice.choice(each) for each in self.seconds])
        left = np.maximum(seconds - self.known, 0.05 * seconds)
        return least_error(self.terms[rows], left[rows], self.counts[rows])

    def errors(self, x: Floats) -> Floats:
        """Return what x says over what was measured, less 1, of each point."""
        took = np.quantile(self.seconds, SHARE, axis=1)
        return (self.terms @ x + self.known) / took - 1

    def intervals(self, x: Floats, shown: Callable[[Floats], Floats]) -> list[tuple[float, float]]:
        """Return 90 % intervals of the numbers `shown` that x stands for."""
        dice, best = np.random.default_rng(0), np.asarray(shown(x), float)
        tries = np.array([shown(self.fit(dice)) for _ in range(TRIES)], float)
        off = np.quantile(1 / (1 + self.errors(x)), (LOW, HIGH))
        scattered = np.array([best, *(shown(x * factor) for factor in off)], float)
        found = []
        for value, column, ends_of_points in zip(best, tries.T, scattered.T, strict=True):
            ends = column[np.isfinite(column)]
            low, high = np.quantile(ends, (LOW, HIGH)) if len(ends) else (value, value)
            far = [float(end) for end in (low, high, *ends_of_points) if np.isfinite(end)]
            found.append((min(far), max(far)))
        return found
