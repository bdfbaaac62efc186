"""Where each rank spends its time, by the name of what it does, with and without what lies within.

Inclusive seconds of a name run from entering to leaving it; one that calls itself counts once. Exclusive
seconds leave out what is nested directly within. What overlaps the program (buckets in flight,
batches being fetched) encloses nothing and is not enclosed. Where a rank has a host beside an accelerator
whose work is on other streams, each stream is by itself; and what ends after the one that it began in is not within it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Array
from lib_dlhpc.timeline.analysis.calls import COLLECTIVE, RECEIVE, SEND
from lib_dlhpc.timeline.kinds import KINDS, STREAMS
from lib_dlhpc.timeline.spans import chunks
from lib_dlhpc.timeline.table import Timeline

MOST_LEVELS = 200


@dataclass(frozen=True, eq=False)
class Regions:
    """Seconds and calls by name and rank, (names, ranks) each, the names with most exclusive time first."""

    names: tuple[str, ...]
    inclusive: Array
    exclusive: Array
    calls: NDArray[np.int64]


def regions(table: Timeline) -> Regions:
    """Return the seconds of each name on each rank, of a table in order (spans.in_order)."""
    shape = (len(table.names), table.ranks)
    inclusive, exclusive = np.zeros(shape), np.zeros(shape)
    calls = np.zeros(shape, np.int64)
    for part in chunks(table):
        _add(table.select(part), inclusive, exclusive, calls)
    used = np.flatnonzero(calls.sum(axis=1))
    used = used[np.argsort(-exclusive[used].sum(axis=1), kind="stable")]
    words = tuple(table.names[name] for name in used)
    return Regions(words, inclusive[used], exclusive[used], calls[used])


def _add(table: Timeline, inclusive: Array, exclusive: Array, calls: NDArray[np.int64]) -> None:
    """Add what some ranks do."""
    stack = np.flatnonzero(on_stack(table))
    place = table.rank[stack].astype(np.int64) * len(STREAMS) + _streams_apart(table)[stack]
    if (np.diff(place) < 0).any():
        order = np.argsort(place, kind="stable")
        stack, place = stack[order], place[order]
    parent = parents(place, table.start[stack], table.stop[stack])
    length = table.stop - table.start
    own = length.copy()
    within = np.flatnonzero(parent >= 0)
    inner = np.bincount(parent[within], weights=length[stack[within]], minlength=len(stack))
    own[stack] = np.maximum(own[stack] - inner, 0.0)
    ranks = table.ranks
    at = table.name.astype(np.int64) * ranks + table.rank
    cells = len(table.names) * ranks
    exclusive += np.bincount(at, weights=own, minlength=cells).reshape(-1, ranks)
    length[stack[_within_itself(table.name[stack], parent)]] = 0.0
    inclusive += np.bincount(at, weights=length, minlength=cells).reshape(-1, ranks)
    calls += np.bincount(at, minlength=cells).reshape(-1, ranks)


def on_stack(table: Timeline) -> NDArray[np.bool_]:
    """Return which rows are what the program itself does, one within another."""
    mask = table.stream == STREAMS.index("compute")
    for kind in (SEND, RECEIVE, COLLECTIVE, KINDS.index("region")):
        mask |= table.kind == kind
    return np.asarray(mask)


def _streams_apart(table: Timeline) -> NDArray[np.int8]:
    """Return the stream of each row of ranks that have a host beside an accelerator, of others 0."""
    has_host = np.zeros(table.ranks, np.bool_)
    has_host[table.rank[table.stream == STREAMS.index("host")]] = True
    return np.where(has_host[table.rank], table.stream, 0).astype(np.int8)


def parents(rank: NDArray[Any], start: Array, stop: Array) -> NDArray[np.int32]:
    """Return the row that directly encloses each, -1: none; rows by rank, start, and longest first.

    Level by level: whatever begins when all before it on its rank have ended is on this level; the others
    lie in the last of them.
    """
    parent = np.full(len(rank), -1, np.int32)
    if not len(rank):
        return parent
    zero = start.min()
    # Ranks one after another on one axis: what a rank did never reaches into the next.
    shift = rank * (1.001 * (stop.max() - zero) + 1e-9)
    rows = np.arange(len(rank), dtype=np.int32)
    begin, end = start - zero + shift, stop - zero + shift
    above = np.full(len(rank), -1, np.int32)
    for _ in range(MOST_LEVELS):
        done = np.maximum.accumulate(end)
        top = np.ones(len(rows), np.bool_)
        top[1:] = begin[1:] >= done[:-1]
        parent[rows[top]] = above[top]
        if top.all():
            break
        last = np.maximum.accumulate(np.where(top, np.arange(len(rows), dtype=np.int32), 0))
        deeper = ~top
        above = rows[last[deeper]]
        rows, begin, end = rows[deeper], begin[deeper], end[deeper]
    close = 1e-9 * (stop.max() - zero)
    longer = np.flatnonzero(parent >= 0)
    for _ in range(MOST_LEVELS):
        longer = longer[stop[longer] > stop[parent[longer]] + close]
        if not len(longer):
            break
        parent[longer] = parent[parent[longer]]
        longer = longer[parent[longer] >= 0]
    return parent


def _within_itself(name: NDArray[np.int32], parent: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which rows lie, however deep, within one of the same name."""
    found = np.zeros(len(name), np.bool_)
    rows = np.flatnonzero(parent >= 0)
    above = parent[rows]
    for _ in range(MOST_LEVELS):
        if not len(rows):
            break
        found[rows] |= name[rows] == name[above]
        above = parent[above]
        rows, above = rows[above >= 0], above[above >= 0]
    return found
