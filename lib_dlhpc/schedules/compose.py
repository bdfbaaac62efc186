"""Schedules from schedules: one after another, side by side, inside a part of the ranks and elements.

All three take and give streams of rounds, so an algorithm is put together with `yield from`:

    yield from then(reduce_scatter(p, n), within(ring(q, m), members, offset), allgather(p, n))
"""

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
from numpy.typing import ArrayLike

from lib_dlhpc.schedules.rounds import Round, Rounds, as_round, messages


def then(*streams: Rounds) -> Iterator[Round]:
    """Yield the rounds of the first stream, then those of the second, and so on."""
    for stream in streams:
        yield from map(as_round, stream)


def beside(*streams: Rounds) -> Iterator[Round]:
    """Yield rounds that hold the messages of all streams: they run at the same time, on different ranks."""
    nothing = as_round([])
    for together in zip_longest(*streams, fillvalue=nothing):
        rounds = [as_round(value) for value in together]
        yield messages(*map(np.concatenate, zip(*[part.arrays for part in rounds], strict=True)))


def within(stream: Rounds, members: ArrayLike, offset: int = 0) -> Iterator[Round]:
    """Yield the rounds of `stream` played by `members`, on the part of the buffer from `offset` on.

    members: the rank that plays 0, 1, 2 ...; with several rows, each row plays at the same time.
    """
    rows = np.atleast_2d(np.asarray(members, dtype=np.int64))
    for value in stream:
        part = as_round(value)
        yield messages(
            rows[:, part.source],
            rows[:, part.target],
            np.broadcast_to(part.offset + offset, (len(rows), len(part))),
            part.count,
            part.reduce,
        )
