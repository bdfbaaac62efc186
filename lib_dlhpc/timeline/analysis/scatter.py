"""When is a difference more than scatter? The one rule that all findings share.

Nothing is reported that costs less than 2 % of the span of the trace. Beyond that a difference must be

    persistent    its mean over all occasions is as far above 0 as a mean of scatter is once in 30,000 cases: 4
                  standard errors of many occasions, more of few (Student's t, by the approximation of D. L.
                  Wallace, Annals of Mathematical Statistics 30, 1959); or it costs 10 % of the span, and is above
                  4 standard errors (one, two or three occasions have none: they just have to cost 10 %); or
    exceptional   single occasions that by themselves cost 2 % of the span, beyond 8 robust standard deviations
                  (1.4826 times the median distance from the median) and beyond twice the largest difference
                  of the other sign; of fewer than 20 occasions they must cost 10 %. Only they are counted then.
"""

import math
from dataclasses import dataclass

import numpy as np

from lib_dlhpc.timeline.analysis.calls import Floats

LEAST = 0.02  # of the span
MUCH = 0.10  # of the span
FEW = 4  # with fewer occasions there is no telling what scatter is
MANY = 20  # occasions that tell what is exceptional
ERRORS = 4.0  # standard errors of the mean
DEVIATIONS = 8.0  # robust standard deviations of a single occasion
OTHER_SIGN = 2.0


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether to report, and which occasions count."""

    seconds: float
    counted: np.ndarray  # mask of the occasions


def judge(difference: Floats, cost: Floats, span: float) -> Verdict | None:
    """Return what occasions cost in all if it is more than scatter, None if not.

    difference, cost: s of each occasion, of either sign, and what it costs somebody (0 or more).
    """
    total, count = float(cost.sum()), len(cost)
    if not total >= LEAST * span or not count:
        return None
    mean, everything = float(difference.mean()), np.ones(count, np.bool_)
    much = total >= MUCH * span
    if count < FEW:
        return Verdict(total, everything) if mean > 0 and much else None
    error = float(difference.std(ddof=1)) / count**0.5
    enough = ERRORS if much else student(count - 1)
    if mean > enough * error and mean * count >= LEAST * span:
        return Verdict(total, everything)
    middle = np.median(difference)
    far = DEVIATIONS * 1.4826 * np.median(np.abs(difference - middle))
    far = max(far, OTHER_SIGN * -float(difference.min()))
    rare = difference > max(middle, 0.0) + far
    total = float(cost[rare].sum())
    least = LEAST if count >= MANY else MUCH
    return Verdict(total, rare) if total >= least * span else None


def student(freedom: int) -> float:
    """Return how many standard errors of the mean are as rare as ERRORS of many, for degrees of freedom above 1."""
    grown = ERRORS**2 * (freedom - 1.5) / (freedom - 1) ** 2
    return math.sqrt(freedom * math.expm1(grown))
