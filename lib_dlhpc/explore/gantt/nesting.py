"""Regions within regions as bars that do not overlap: what is entered last is what is seen."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.timeline import KINDS, Timeline


def innermost(timeline: Timeline, beside: NDArray[np.intp]) -> tuple[Timeline, NDArray[np.intp]]:
    """Return the rows, regions cut into the stretches in which none within them goes on, and their `beside`.

    beside: a number of each row, which its stretches share.
    """
    region = timeline.where("", "region")
    if not region.any():
        return timeline, beside
    lane = timeline.rank.astype(np.int64) * len(KINDS) + timeline.stream
    others = np.flatnonzero(~region)
    cut: list[Any] = [*zip(others, timeline.start[others], timeline.stop[others], strict=True)]
    for one in np.unique(lane[region]):
        cut += _stretches(timeline, np.flatnonzero(region & (lane == one)))
    at, start, stop = np.reshape(cut, (-1, 3)).T
    rows = at.astype(np.intp)
    return replace(timeline.select(rows), start=start, stop=stop), beside[rows]


def _stretches(timeline: Timeline, rows: NDArray[np.intp]) -> Iterator[tuple[int, float, float]]:
    """Yield (row, start, stop): whichever of the rows in progress began last."""
    order = rows[np.lexsort((-timeline.stop[rows], timeline.start[rows]))]
    begins, ends = (column[order].tolist() for column in (timeline.start, timeline.stop))
    begun: list[tuple[int, float]] = []  # rows in progress and their ends, the last to begin last
    now = -np.inf
    for row, start, stop in zip([*order, -1], [*begins, np.inf], [*ends, np.inf], strict=True):
        while begun and now < start:
            seen, end = begun[-1]
            if end > now:
                yield seen, now, min(end, start)
                now = min(end, start)
            if end > start:
                break
            begun.pop()
        begun.append((row, stop))
        now = start
