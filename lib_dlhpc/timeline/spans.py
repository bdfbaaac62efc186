"""Stretches of time of each rank that do not overlap, and questions about them that arrays answer at once."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.timeline.table import Timeline

Floats: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Spans:
    """Stretches of time that do not overlap, by rank, then time; `until` is the sum of all before."""

    rank: NDArray[np.int32]
    start: Floats
    stop: Floats
    until: Floats
    ranks: int

    def before(self, rank: NDArray[np.int32], time: Floats) -> Floats:
        """Return the seconds within the stretches of each rank up to each time, up to a constant of the rank."""
        if not len(self.rank):
            return np.zeros(len(time))
        low = min(float(self.start.min()), float(time.min(initial=np.inf)))
        axis = 1.001 * (max(float(self.stop.max()), float(time.max(initial=-np.inf))) - low) + 1e-9
        at = np.searchsorted(self.start - low + axis * self.rank, time - low + axis * rank, "right")
        at -= 1
        length = np.clip(time - self.start[at], 0.0, self.stop[at] - self.start[at])
        length = np.where((at >= 0) & (self.rank[at] == rank), length, 0.0)
        # Of a rank before its first stretch: the sum up to there.
        first = np.searchsorted(self.rank, rank)
        at = np.maximum(at, first)
        whole = np.concatenate([self.until, [self.until[-1] + self.stop[-1] - self.start[-1]]])
        return np.asarray(whole[at] + length)

    def total(self) -> Floats:
        """Return the seconds of each rank, shape (ranks,)."""
        return np.bincount(self.rank, weights=self.stop - self.start, minlength=self.ranks)


def union(table: Timeline, rows: NDArray[np.bool_]) -> Spans:
    """Return the time in which at least one of the rows of a table in order is going on."""
    rank, start, stop = table.rank[rows], table.start[rows], table.stop[rows]
    if not len(rank):
        nothing = np.zeros(0)
        return Spans(rank, nothing, nothing, nothing, table.ranks)
    low = start.min()
    shift = rank * (1.001 * (stop.max() - low) + 1e-9) - low
    begin, done = start + shift, np.maximum.accumulate(stop + shift)
    new = np.ones(len(rank), np.bool_)
    new[1:] = begin[1:] > done[:-1]
    del begin
    first = np.flatnonzero(new)
    if len(first) < len(rank):
        del done
        stop = np.maximum.reduceat(stop, first)
        rank, start = rank[first], start[first]
    length = stop - start
    return Spans(rank, start, stop, np.cumsum(length) - length, table.ranks)


def in_order(timeline: Timeline) -> Timeline:
    """Return the rows by rank, then by start, what encloses before what it encloses; itself if it is so."""
    rank, start, stop = timeline.rank, timeline.start, timeline.stop
    step = np.diff(rank)
    same = step == 0
    later = start[1:] > start[:-1]
    later |= (start[1:] == start[:-1]) & (stop[1:] <= stop[:-1])
    if bool((step >= 0).all()) and bool((later | ~same).all()):
        return timeline
    return timeline.select(np.lexsort((-stop, start, rank)))
