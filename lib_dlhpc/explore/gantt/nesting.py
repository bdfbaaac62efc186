"""Regions within regions as bars that do not overlap: what is entered last is what is seen."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.timeline import KINDS, Timeline

REGION = KINDS.index("region")


def innermost(timeline: Timeline, beside: NDArray[np.intp]) -> tuple[Timeline, NDArray[np.intp]]:
    """Return the rows, regions cut into the stretches in which none within them goes on, and their `beside`.

    beside: a number of each row, which its stretches share.
    """
    region = timeline.kind == REGION
    if not region.any():
        return timeline, beside
    rows = [np.flatnonzero(~region)]
    start, stop = [timeline.start[rows[0]]], [timeline.stop[rows[0]]]
    place = timeline.rank.astype(np.int64) * len(KINDS) + timeline.stream
    for one in np.unique(place[region]):
        cut = np.array(list(_stretches(timeline, np.flatnonzero(region & (place == one)))))
        if len(cut):
            rows.append(cut[:, 0].astype(np.intp))
            start.append(cut[:, 1])
            stop.append(cut[:, 2])
    at = np.concatenate(rows)
    table = timeline.select(at)
    return replace(table, start=np.concatenate(start), stop=np.concatenate(stop)), beside[at]


def _stretches(timeline: Timeline, rows: NDArray[np.intp]) -> Iterator[tuple[int, float, float]]:
    """Yield (row, start, stop): whichever of the rows under way began last."""
    order = rows[np.lexsort((-timeline.stop[rows], timeline.start[rows]))]
    open_: list[tuple[int, float]] = []  # rows under way and their ends, the last to begin last
    now = -np.inf
    for row, start, stop in zip(
        order.tolist(), timeline.start[order].tolist(), timeline.stop[order].tolist(), strict=True
    ):
        yield from _until(start, now, open_)
        open_.append((row, stop))
        now = start
    yield from _until(np.inf, now, open_)


def _until(
    time: float, now: float, open_: list[tuple[int, float]]
) -> Iterator[tuple[int, float, float]]:
    """Yield what is seen from `now` until `time`, and leave in `open_` what goes on then."""
    while open_ and now < time:
        row, stop = open_[-1]
        end = min(stop, time)
        if end > now:
            yield row, now, end
            now = end
        if stop > time:
            break
        open_.pop()
