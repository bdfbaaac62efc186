"""Waiting for the slowest: with p ranks a synchronous step lasts as long as the slowest of p.

If a rank's compute time has mean t and standard deviation jitter * t, the slowest of p takes
t (1 + jitter m_p), where m_p is the expected largest of p standard normal numbers.
"""

from statistics import NormalDist
from typing import Any

import numpy as np

# Blom 1958: m_p is about the normal quantile of (p - 3/8) / (p + 1/4); tabulated, then interpolated in lg p.
_LOG_RANKS = np.linspace(0.0, 24.0, 481)
_LARGEST = np.array([NormalDist().inv_cdf((p - 0.375) / (p + 0.25)) for p in 2.0**_LOG_RANKS])


def largest_of(ranks: Any) -> Any:
    """Return the expected largest of `ranks` standard normal numbers, to 5 % (0 for one rank)."""
    return np.interp(np.log2(ranks), _LOG_RANKS, _LARGEST)


def slowest(ranks: Any, jitter: Any) -> Any:
    """Return by which factor the slowest of `ranks` exceeds the mean; `jitter` is sigma over mean."""
    return 1 + jitter * largest_of(ranks)
