"""Composition of schedules: in sequence, concurrently, on a subset of ranks and elements.

All three take and return streams of rounds, so an algorithm is composed with `yield from`:

    yield from then(reduce_scatter(p, n), within(ring(q, m), members, offset), allgather(p, n))
"""

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc.schedules.rounds import Round, Rounds, as_round


def then(*streams: Rounds) -> Iterator[Round]:
    """Yield the rounds of the first stream, then those of the second, and so on."""
    for stream in streams:
        yield from map(as_round, stream)


def beside(*streams: Rounds) -> Iterator[Round]:
    """Yield rounds with the messages of all streams, which run concurrently on different ranks.

    Where a switch does not treat all of a round alike, it does nothing with it.
    """
    empty = as_round([])
    for concurrent in zip_longest(*streams, fillvalue=empty):
        rounds = [as_round(value) for value in concurrent]
        columns = zip(*[part.arrays for part in rounds], strict=True)
        source, target, offset, count, reduce = map(np.concatenate, columns)
        kinds = {part.switch for part in rounds if len(part)}
        switch = kinds.pop() if len(kinds) == 1 else ""
        yield Round(source, target, offset, count, reduce, switch)


def within(stream: Rounds, members: ArrayLike, offset: int = 0) -> Iterator[Round]:
    """Yield the rounds of `stream` mapped to the ranks `members`, and to the buffer from `offset` on.

    members: the ranks in the roles of 0, 1, 2 ...; the rows of a matrix run concurrently.
    """
    rows = np.atleast_2d(np.asarray(members, dtype=np.int64))
    for value in stream:
        part = as_round(value)
        source, target = (rows[:, places].reshape(-1) for places in (part.source, part.target))
        moved, count, reduce = part.offset + offset, part.count, part.reduce
        if len(rows) > 1:
            moved, count = (np.tile(places, len(rows)) for places in (moved, count))
            reduce = np.tile(reduce, len(rows))
        yield Round(source, target, moved, count, reduce, part.switch)
