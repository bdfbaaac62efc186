"""The Pareto front of several objectives, its knee, and what changes along it.

A point is on the front if no other is at least as good in all objectives and better in one. The knee is the point
furthest below the line, or plane, between the best points of each objective, each axis scaled to its range on the front
(Das 1999, "On characterizing the knee of the Pareto curve").
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def front(values: NDArray[np.float64]) -> list[int]:
    """Return the rows on the front, by the first objective; values: (points, objectives), less is better.

    Of equal points, the first.
    """
    found: list[int] = []
    for row in np.lexsort(values.T[::-1]).tolist():
        if not any((values[other] <= values[row]).all() for other in found):
            found.append(row)
    return found


def knee(values: NDArray[np.float64]) -> int:
    """Return the row of the knee among the points of a front."""
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    return int(scaled.sum(axis=1).argmin())


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Return in words what changes from one choice to the next."""

    def shown(name: str, each: Any) -> str:
        return (
            ("none" if not each else f"{each:g} W") if name.endswith("power_limit") else str(each)
        )

    words = [
        f"{name.partition('.')[2].replace('_', ' ')} {shown(name, one[name])} → {shown(name, other[name])}"
        for name in other
        if one[name] != other[name]
    ]
    return ", ".join(words)
