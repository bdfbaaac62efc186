"""What the tables of misconceptions share."""

from collections.abc import Callable, Sequence

Formula = Callable[[Sequence[float]], float]


def crossing(f: Callable[[float], float]) -> float:
    """Bisect where a rising function is 0."""
    low, high = 1.0, 1e6
    while high - low > 1e-3 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) < 0 else (low, middle)
    return low
