"""When is a difference more than scatter? The one rule that all findings share.

Nothing is reported that costs less than 2 % of the span of the trace. Beyond that a difference must be

    persistent    its mean is above 4 standard errors of the mean of its occasions, of which there are at
                  least 4; with fewer, which tell nothing of scatter, it must cost 10 % of the span; or
    exceptional   single occasions that by themselves cost 2 % of the span, beyond 8 robust standard deviations
                  (1.4826 times the median distance from the median) and beyond twice the largest difference
                  of the other sign; only they are counted then.
"""

from dataclasses import dataclass

import numpy as np

from lib_dlhpc.timeline.analysis.calls import Floats

LEAST = 0.02  # of the span
LEAST_OF_FEW = 0.10  # of the span, where there are fewer than FEW occasions
FEW = 4
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
    mean = float(difference.mean())
    if count < FEW:
        few = mean > 0 and total >= LEAST_OF_FEW * span
        return Verdict(total, np.ones(count, np.bool_)) if few else None
    error = float(difference.std(ddof=1)) / count**0.5
    if mean > ERRORS * error and mean * count >= LEAST * span:
        return Verdict(total, np.ones(count, np.bool_))
    middle = np.median(difference)
    far = DEVIATIONS * 1.4826 * np.median(np.abs(difference - middle))
    far = max(far, OTHER_SIGN * -float(difference.min()))
    rare = difference > max(middle, 0.0) + far
    total = float(cost[rare].sum())
    return Verdict(total, rare) if total >= LEAST * span else None
