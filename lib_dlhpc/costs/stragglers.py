"""Waiting for the slowest: with p ranks a synchronous step lasts as long as the slowest of p.

If a rank's compute time has mean t and standard deviation jitter * t, the slowest of p takes
t (1 + jitter m_p), where m_p is the expected largest of p standard normal numbers. Ranks that meet only
every H steps wait for the slowest sum of H draws, whose deviation is sqrt(H) jitter t: by a step,
t jitter m_p / sqrt(H).

Ranks that may be up to s steps ahead of the slowest wait less still. Each wanders from the others as the
sum of its draws does, with a variance of (jitter t)^2 a step, and is stopped where it is s cycles T
ahead. In the steady state their density falls off exponentially towards the slowest; the slowest of p
lies s T away if all wait (jitter t)^2 / (2 s T) * (1 + 1/2 + ... + 1/(p-1)) a step: to first order in
the jitter, exact for two ranks. Without a bound no rank waits.
"""

from math import erfc, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray


def _largest(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Blom's estimate (1958): the normal quantile of (p - 3/8) / (p + 1/4), the root x of a share above x.

    By Halley's method for erfc; `statistics`, which has the quantile, takes longer to import than a prediction.
    """
    share, x = 0.625 / (ranks + 0.25), np.sqrt(2 * np.log(ranks))
    for _ in range(5):
        above = np.array([erfc(value) for value in x / np.sqrt(2)]) / 2
        newton = (above - share) * np.sqrt(2 * pi) * np.exp(x**2 / 2)
        x = x + newton / (1 - x * newton / 2)
    return x


# Tabulated, then interpolated in lg p.
_LOG_RANKS = np.linspace(0.0, 24.0, 481)
_LARGEST = _largest(2.0**_LOG_RANKS)


def largest_of(ranks: Any) -> Any:
    """Return the expected largest of `ranks` standard normal numbers, to 5% (0 for one rank)."""
    return np.interp(np.log2(ranks), _LOG_RANKS, _LARGEST)


def slowest(ranks: Any, jitter: Any, steps: Any = 1) -> Any:
    """Return by which factor the slowest of `ranks` exceeds the mean when they meet every `steps` steps.

    jitter: sigma over mean of one step.
    """
    return 1 + jitter * largest_of(ranks) / np.sqrt(steps)


def wait(busy: Any, slow: Any) -> Any:
    """Return the s a step in which ranks wait for the slowest, which computes `slow` times as long as the mean.

    busy: s of compute in a step; with a pipeline of its busiest stage: a stage that computes less has its turn later,
    and only the busiest is sure to delay the others.
    """
    return busy * (slow - 1)


def bounded_wait(busy: Any, cycle: Any, ranks: Any, jitter: Any, ahead: Any) -> Any:
    """Return the s a step in which a rank waits because it is `ahead` steps ahead of the slowest.

    busy: s of compute in a step, with sigma `jitter` over mean; cycle: s from step to step without the
    wait. ahead: 0 is no bound and no wait. Never more than ranks wait that meet every ahead + 1 steps,
    for such ranks keep the bound as well.
    """
    several = np.maximum(ranks, 2)
    harmonic = np.where(np.equal(ranks, 1), 0.0, np.log(several - 0.5) + np.euler_gamma)
    wandering = (jitter * busy) ** 2 * harmonic / (2 * np.maximum(ahead, 1) * cycle)
    most = wait(busy, slowest(ranks, jitter, np.add(ahead, 1)))
    return np.where(np.equal(ahead, 0), 0.0, np.minimum(wandering, most))[()]
