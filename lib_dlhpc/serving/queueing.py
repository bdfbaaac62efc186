"""Queues in closed form: the wait for one of several places, and the batch that a load settles at."""

from collections.abc import Callable
from math import inf, sqrt

BISECTIONS = 50


def queue_wait(rate: float, hold: float, places: int, spread: float = 0.0) -> float:
    """Return the mean s that a Poisson arrival waits for one of `places` that are held for `hold` s each.

    spread: standard deviation of the hold over its mean. Sakasegawa 1977, times the half of 1 + spread^2 (Allen and
    Cunneen); of one place it is exact: M/G/1 (Pollaczek and Khinchine).
    """
    busy = rate * hold / places
    if busy >= 1:
        return inf
    wait = busy ** (sqrt(2 * (places + 1)) - 1) / (places * (1 - busy)) * hold / 2
    return wait * (1 + spread**2)


def settled(inside: Callable[[float], float], most: int) -> float:
    """Return the batch b of at most `most` that Little's law gives, b = inside(b): rate * the time in a batch of b."""
    low, high = 0.0, float(most)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(max(middle, 1.0)) > middle else (low, middle)
    return max(high, 0.0)


def between(of: Callable[[int], float], batch: float) -> float:
    """Return the value for a mean batch, between those of whole batches in proportion; of at least 1."""
    low, part = int(max(batch, 1.0)), max(batch, 1.0) - int(max(batch, 1.0))
    one = of(low)
    return one + part * (of(low + 1) - one) if part else one
