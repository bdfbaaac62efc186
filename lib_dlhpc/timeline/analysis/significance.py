"""When is a difference more than scatter? The one rule that all findings share.

Nothing is reported that costs less than 2% of the span of the trace. Beyond that a difference must be

    persistent    its mean over all occasions is as far above 0 as a mean of scatter is once in 30,000 cases: 4
                  standard errors of many occasions, more of few (Student's t, by the approximation of D. L.
                  Wallace, Annals of Mathematical Statistics 30, 1959); of 4 to 7 occasions once in 500 cases
                  will do if it is 10% of the span. Fewer do not define scatter: they yield no
                  finding. So that one long delay hides nothing, the same is asked of the differences drawn in
                  to what is called far below; either will do; or
    exceptional   single occasions that by themselves cost 2% of the span and as much time as ten occasions
                  last, and are far: beyond 8 robust standard deviations (1.4826 times the median distance
                  from the median) from the median, beyond twice the largest difference of the other sign, and
                  beyond twice the largest deviation of any other rank. Only they are counted then. A busy
                  machine holds up some rank for a moment in every run: what is shorter, or happened to two
                  ranks, cannot be distinguished from that.

Where ranks are compared (`above`), each is compared with the mean or the median of the others, whichever is more.
Delays have one sign and a long tail, so that of equal ranks each is above the median of the others on average, and
none above their mean; but where one rank has less to do than all others, these are above their mean, and
not above their median.
"""

import math
from dataclasses import dataclass

import numpy as np

from lib_dlhpc.arrays import Array

LEAST = 0.02  # of the span
MUCH = 0.10  # of the span
FEW = 4  # with fewer occasions there is no telling what scatter is
ENOUGH = 25  # occasions from which a mean as large as their scatter is at least 4 standard errors above 0
SOME = 8  # with fewer occasions even what is plain to see is not as rare as 4 standard errors
LONG = 10  # occasions that what is exceptional costs as much time as
ERRORS, SOME_ERRORS = 4.0, 2.9  # standard errors of the mean, of many occasions
DEVIATIONS = 8.0  # robust standard deviations of a single occasion
OTHER_SIGN = 2.0


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether to report, and which occasions count."""

    seconds: float
    counted: np.ndarray  # mask of the occasions


def judge(
    difference: Array, cost: Array, span: float, others: Array | None = None
) -> Verdict | None:
    """Return what occasions cost in all if it is more than scatter, None if not.

    difference, cost: s of each occasion, of either sign, and what it costs somebody (0 or more).
    others: how far other ranks were from the usual, s, of either sign; any shape, None: not known.
    """
    total, count = float(cost.sum()), len(cost)
    if not total >= LEAST * span or not count:
        return None
    if count < FEW:
        return None
    everything = np.ones(count, np.bool_)
    plain = count < SOME and min(float(difference.sum()), total) >= MUCH * span
    enough = student(count - 1, SOME_ERRORS if plain else ERRORS)
    middle = float(np.median(difference))
    far = DEVIATIONS * 1.4826 * float(np.median(np.abs(difference - middle)))
    drawn_in = np.clip(difference, middle - far, middle + far)
    if any(_above(each, enough, LEAST * span / count) for each in (difference, drawn_in)):
        return Verdict(total, everything)
    spread = 0.0 if others is None else float(np.abs(others).max(initial=0.0))
    far = max(far, OTHER_SIGN * -float(difference.min()), OTHER_SIGN * spread)
    rare = difference > max(middle, 0.0) + far
    total = float(cost[rare].sum())
    return Verdict(total, rare) if total >= max(LEAST, LONG / count) * span else None


def _above(difference: Array, enough: float, least: float) -> bool:
    """Return whether the mean is at least `least`, and more than `enough` standard errors above 0."""
    error = float(difference.std(ddof=1)) / len(difference) ** 0.5
    return float(difference.mean()) > max(enough * error, least)


def student(freedom: int, errors: float = ERRORS) -> float:
    """Return how many standard errors of the mean are as rare as `errors` of many, for degrees of freedom above 1."""
    grown = errors**2 * (freedom - 1.5) / (freedom - 1) ** 2
    return math.sqrt(freedom * math.expm1(grown))


def above(values: Array) -> Array:
    """Return how far each rank is above the mean or the median of the others, whichever is more.

    values: (ranks, occasions), of at least two ranks.
    """
    ranks = len(values)
    mean = (values.sum(axis=0) - values) / (ranks - 1)
    ordered = np.sort(values, axis=0)
    rank = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable")
    left = [k + (k >= rank) for k in ((ranks - 2) // 2, (ranks - 1) // 2)]  # without its own place
    median = sum(np.take_along_axis(ordered, at, axis=0) for at in left) / 2
    return np.asarray(values - np.maximum(mean, median))
