"""Stretches of time of each rank that do not overlap, and questions about them that arrays answer at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.kinds import KINDS
from lib_dlhpc.timeline.table import Timeline

CHUNK = 1_000_000  # rows
CALLS = [KINDS.index(kind) for kind in ("send", "receive", "collective")]


@dataclass(frozen=True, eq=False)
class Spans:
    """Stretches of time that do not overlap, by rank, then time; `until` is the sum of all before."""

    rank: NDArray[np.int32]
    start: Array
    stop: Array
    until: Array
    ranks: int

    def before(self, rank: NDArray[np.int32], time: Array) -> Array:
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

    def total(self) -> Array:
        """Return the seconds of each rank, shape (ranks,)."""
        return np.bincount(self.rank, weights=self.stop - self.start, minlength=self.ranks)


def union(table: Timeline, rows: NDArray[np.bool_]) -> Spans:
    """Return the time during which at least one row of an ordered table is active."""
    parts = [_union(table.select(part), rows[part]) for part in chunks(table)]
    if not parts:
        return Spans(table.rank, table.start, table.stop, table.start, table.ranks)
    rank, start, stop = (np.concatenate(column) for column in zip(*parts, strict=True))
    length = stop - start
    until = np.cumsum(length)
    until -= length
    return Spans(rank, start, stop, until, table.ranks)


def covered(table: Timeline, rows: NDArray[np.bool_]) -> Array:
    """Return for how long at least one row of an ordered table is active, s of each rank, (ranks,)."""
    seconds = np.zeros(table.ranks)
    for part in chunks(table):
        rank, start, stop = _union(table.select(part), rows[part])
        seconds += np.bincount(rank, weights=stop - start, minlength=table.ranks)
    return seconds


def chunks(table: Timeline) -> Iterator[slice]:
    """Yield the rows of a table in order, some ranks at a time, so that what is worked out in between stays small."""
    edges = np.searchsorted(table.rank, np.arange(table.ranks + 1)).tolist()
    begin = 0
    for low, high in pairwise(edges):
        if high - begin > CHUNK and low > begin:
            yield slice(begin, low)
            begin = low
    if edges[-1] > begin:
        yield slice(begin, edges[-1])


def in_order(timeline: Timeline) -> Timeline:
    """Return the rows by rank, then by start, what encloses before what it encloses; itself if it is so.

    Of two calls that begin together one took no time: it was first.
    """
    rank, start, stop = timeline.rank, timeline.start, timeline.stop
    if _is_in_order(rank, start, stop):
        return timeline
    return timeline.select(_order(timeline))


def _order(timeline: Timeline) -> NDArray[Any]:
    rank, start, stop = timeline.rank, timeline.start, timeline.stop
    # The quick sort, which keeps nothing in its place: ties are put right below.
    order = np.argsort(start)
    narrow = np.uint16 if timeline.ranks <= 1 << 16 else np.int32
    order = order[np.argsort(rank[order].astype(narrow), kind="stable")]
    begin, who = start[order], rank[order]
    tie = np.zeros(len(order), np.bool_)
    same = (begin[1:] == begin[:-1]) & (who[1:] == who[:-1])
    tie[1:] |= same
    tie[:-1] |= same
    at = np.flatnonzero(tie)
    if len(at):
        among = order[at]
        call = np.isin(timeline.kind[among], CALLS)
        end = np.where(call, stop[among], -stop[among])
        order[at] = among[np.lexsort((among, end, call, begin[at], who[at]))]
    return order


def _is_in_order(rank: NDArray[np.int32], start: Array, stop: Array) -> bool:
    step = np.diff(rank)
    if (step < 0).any():
        return False
    later = start[1:] > start[:-1]
    later |= step > 0
    # Begin together on one rank: the longer one first, or nothing before something.
    at = np.flatnonzero(~later)
    if (start[at + 1] < start[at]).any():
        return False
    return bool(((stop[at + 1] <= stop[at]) | (stop[at] == start[at])).all())


def _union(table: Timeline, rows: NDArray[np.bool_]) -> tuple[NDArray[np.int32], Array, Array]:
    """Return rank, start and stop of the stretches that the rows make together."""
    rank, start, stop = table.rank[rows], table.start[rows], table.stop[rows]
    if not len(rank):
        return rank, start, stop
    low = start.min()
    shift = rank * (1.001 * (stop.max() - low) + 1e-9) - low
    done = np.maximum.accumulate(stop + shift)
    new = np.ones(len(rank), np.bool_)
    new[1:] = (start + shift)[1:] > done[:-1]
    first = np.flatnonzero(new)
    if len(first) < len(rank):
        stop = np.maximum.reduceat(stop, first)
        rank, start = rank[first], start[first]
    return rank, start, stop
