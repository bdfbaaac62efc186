"""Fit a storage tier to a set of points, each number with an interval.

A single reader takes operations * operation_latency + reads * read_latency + bytes / reader_bandwidth for a sample.
All readers together take at least operations / metadata_rate + reads / read_rate + bytes / bandwidth: they compete for
the same cores and disk. Both laws are linear in three nonnegative unknowns. The extra cost of a file over a read of
equal size from a partition counts as metadata, including the kernel's first lookup of its blocks, which a plain open
does not show.

A tier needs a bandwidth. If the points do not determine it, because calls dominate over bytes or readers do not
contend, the largest measured rate is used, a lower bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from lib_dlhpc.calibration.expected import expected
from lib_dlhpc.calibration.points import Point
from lib_dlhpc.calibration.workspace import CalibrationError
from lib_dlhpc.spec.machine import StorageTier

FITTED = ("file", "random")  # samples in random order; other points are for comparison only
ALONE = ("operation_latency", "read_latency", "reader_bandwidth")
TOGETHER = ("metadata_rate", "read_rate", "bandwidth")
QUEUES = 1.1  # times a single reader's time over their number: above it, readers contend
SMALL = 0.05  # Huber threshold of relative errors
ROUNDS = 10  # of reweighting
TRIES = 100  # of the bootstrap
Floats = Any


@dataclass(frozen=True)
class Fit:
    """A tier, with the 10% and 90% quantiles of the resampled fits for each number."""

    tier: StorageTier
    intervals: dict[str, tuple[float, float]]
    errors: tuple[float, ...]  # expected / measured - 1 of each point that was fitted
    bound: bool = False  # whether the bandwidth is only the largest measured rate

    @property
    def error(self) -> float:
        """The median of |expected / measured - 1|."""
        return float(np.median(np.abs(self.errors)))


def fit_io(points: Sequence[Point], name: str = "disk", scope: str = "node") -> Fit:
    """Return the tier that best fits the medians of the points, with bootstrap intervals over the repeats.

    scope: as in StorageTier. Raises CalibrationError unless there are single-reader points for files of two sizes and
    for random reads of two sizes. Bootstrap: Efron 1979.
    """
    used = [point for point in points if point.what in FITTED]
    kinds = {(point.what, point.size) for point in used if point.readers == 1}
    for what in FITTED:
        sizes = sorted(size for kind, size in kinds if kind == what)
        if len(sizes) < 2:
            raise CalibrationError(
                f"Points of one reader, {what!r}: {len(sizes)} sizes; a fit needs at least 2."
            )
    written = [point for point in points if point.what == "write"]
    best, bound = _numbers(used, written, [point.quantile(0.5) for point in [*used, *written]])
    dice = np.random.default_rng(0)
    tries = [
        _numbers(
            used,
            written,
            [
                float(np.median(dice.choice(point.calm, len(point.calm))))
                for point in [*used, *written]
            ],
        )[0]
        for _ in range(TRIES)
    ]
    intervals = {key: ends_of(value, [each[key] for each in tries]) for key, value in best.items()}
    tier = StorageTier(scope=scope, name=name, servers="one", **best)
    errors = tuple(expected(tier, point) / point.quantile(0.5) - 1 for point in used)
    return Fit(tier, intervals, errors, bound)


def _numbers(
    used: Sequence[Point], written: Sequence[Point], seconds: Sequence[float]
) -> tuple[dict[str, float], bool]:
    """Return the tier's numbers, and whether the bandwidth is only a lower bound.

    seconds: a sample, of the points used, then of the writes.
    """
    terms = np.array([(point.operations, point.reads, point.bytes) for point in used], float)
    took, readers = np.array(seconds[: len(used)]), np.array([point.readers for point in used])
    alone = least_error(terms[readers == 1], took[readers == 1])
    queue = (readers > 1) & (took > QUEUES * (terms @ alone) / readers)
    shared = least_error(terms[queue], took[queue]) if queue.any() else np.zeros(3)
    # If readers do not contend, or one reader is no faster than all together.
    shared = np.minimum(shared, alone)
    numbers = {key: float(value) for key, value in zip(ALONE, alone, strict=True)}
    numbers["reader_bandwidth"] = _inverse(alone[2])
    numbers |= dict(zip(TOGETHER, map(_inverse, shared), strict=True))
    bound = math.isinf(numbers["bandwidth"])
    if bound:
        numbers["bandwidth"] = float(np.max(terms[:, 2] / took))
    if written:
        rates = zip(written, seconds[len(used) :], strict=True)
        numbers["write_bandwidth"] = max(point.bytes / took for point, took in rates)
    return numbers, bound


def least_error(terms: Floats, seconds: Floats, counts: Floats | float = 1.0) -> Floats:
    """Return the x >= 0 with the least sum of |terms @ x / seconds - 1|, which is robust to outliers.

    terms: (points, unknowns); seconds: (points,). counts: weight of each point. Small errors are squared (Huber 1964),
    by iteratively reweighted least squares.
    """
    rows, weights = terms / seconds[:, None], np.ones(len(seconds))
    for _ in range(ROUNDS):
        x = _not_negative(rows * (counts * weights)[:, None], counts * weights)
        weights = 1 / np.sqrt(np.maximum(np.abs(rows @ x - 1), SMALL))
    return x


def _not_negative(rows: Floats, target: Floats) -> Floats:
    """Return the nonnegative least-squares solution, by trying all subsets of columns."""
    best, least = np.zeros(rows.shape[1]), float(target @ target)
    for count in range(1, rows.shape[1] + 1):
        for columns in map(list, combinations(range(rows.shape[1]), count)):
            part = np.linalg.lstsq(rows[:, columns], target)[0]
            rest = float(np.sum((rows[:, columns] @ part - target) ** 2))
            if (part >= 0).all() and rest < least:
                best, least = np.zeros(rows.shape[1]), rest
                best[columns] = part
    return best


def ends_of(found: float, values: Sequence[float]) -> tuple[float, float]:
    """Return the interval of a fitted value, which lies inside."""
    low, high = np.quantile(values, (0.1, 0.9), method="nearest")
    return min(float(low), found), max(float(high), found)


def _inverse(value: float) -> float:
    return 1 / float(value) if value > 0 else math.inf
