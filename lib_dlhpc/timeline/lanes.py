"""Lanes: what overlaps on one stream without nesting is drawn, and written, side by side."""

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.timeline.kinds import STREAMS
from lib_dlhpc.timeline.table import Column, Timeline


def in_order(timeline: Timeline, start: Column, stop: Column) -> NDArray[np.intp]:
    """Return the rows by rank, stream and start; what begins together from the longest to the shortest.

    start, stop: the times to go by, shape (rows,): those of the table, or ticks made of them.
    """
    return np.lexsort((-stop, start, timeline.stream, timeline.rank))


def lanes(timeline: Timeline, start: Column, stop: Column) -> NDArray[np.int32]:
    """Return the lane of each row, shape (rows,), for rows that are `in_order`.

    On one lane of a rank's stream two rows lie one after the other or one within the other; a row takes
    the first lane where it does, so that all are on lane 0 where nothing overlaps.
    """
    place = timeline.rank.astype(np.int64) * len(STREAMS) + timeline.stream
    lane = np.zeros(len(timeline), np.int32)
    if not len(lane):
        return lane
    edges = np.flatnonzero(np.diff(place)) + 1
    for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(lane)], strict=True):
        first, last = start[low:high], stop[low:high]
        if (first[1:] >= np.maximum.accumulate(last)[:-1]).all():
            continue  # one after the other
        lane[low:high] = _nested(first.tolist(), last.tolist())
    return lane


def _nested(start: list[float], stop: list[float]) -> list[int]:
    # For each lane, when its open spans stop, innermost last.
    open_until: list[list[float]] = []
    taken = []
    for begin, end in zip(start, stop, strict=True):
        for stack in open_until:
            while stack and stack[-1] <= begin:
                stack.pop()
        room = (n for n, stack in enumerate(open_until) if not stack or stack[-1] >= end)
        lane = next(room, len(open_until))
        if lane == len(open_until):
            open_until.append([])
        open_until[lane].append(end)
        taken.append(lane)
    return taken
