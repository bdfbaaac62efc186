"""Robust statistics of noisy repeats: only the calmer half counts; fits of least relative error; 90% intervals.

An interval covers bootstrap fits (repeats and points resampled: Efron 1979), and the distance of single points from
the fit: a prediction is for one size, not for the mean of all.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.calibration.fit import least_error

TRIES = 60
LOW, HIGH = 0.05, 0.95
SHARE = 0.3  # quantile of the calm repeats: load by other processes only ever adds time
Floats = Any


def calm(loads: Sequence[float] | Floats) -> Floats:
    """Return which repeats count: at least half of them, those with the least load by other processes."""
    return np.asarray(loads) <= np.median(loads)


def typical(seconds: Floats) -> float:
    """Return the typical time of the calm repeats."""
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
        """known: s of each point outside the law, subtracted before the fit. counts: weights of the points."""
        self.terms, self.seconds = np.asarray(terms, float), np.asarray(seconds, float)
        self.known, self.counts = (
            np.broadcast_to(np.asarray(each, float), (len(self.terms),)) for each in (known, counts)
        )

    def fit(self, dice: np.random.Generator | None = None) -> Floats:
        """Return x >= 0 of least relative error; with dice, of a bootstrap sample of points and repeats."""
        rows = np.arange(len(self.terms))
        seconds = np.quantile(self.seconds, SHARE, axis=1)
        if dice is not None:
            rows = np.sort(dice.integers(0, len(rows), len(rows)))
            seconds = np.array([dice.choice(each) for each in self.seconds])
        left = np.maximum(seconds - self.known, 0.05 * seconds)
        return least_error(self.terms[rows], left[rows], self.counts[rows])

    def errors(self, x: Floats) -> Floats:
        """Return fitted over measured, minus 1, of each point."""
        took = np.quantile(self.seconds, SHARE, axis=1)
        return (self.terms @ x + self.known) / took - 1

    def intervals(self, x: Floats, shown: Callable[[Floats], Floats]) -> list[tuple[float, float]]:
        """Return 90% intervals of the numbers `shown(x)`."""
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
