"""The two halves of a ring, carried out on arrays that may lie anywhere, with nothing set up before.

The messages are those of `ring_reduce_scatter` and `ring_allgather` (rings.py). Where `prepared` (execute.py) sets up
those of one buffer that stays, these are made when their turn comes: the arrays may be others each time.
What is predicted may be another algorithm (choice.py): on up to three ranks of a node that has as many messages one
after another; on p it saves p-1 - ceil(lg p) latencies of them, microseconds each.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.schedules.execute import Buffer

SUMS, COPIES = 12, 13  # tags, so that one half may be under way beside the other
PIECE = 1 << 20  # B of a message of sums, about: what has arrived takes as much memory
Rounds: TypeAlias = Iterator[list[Any]]  # of requests: one round's must be through before the next


def reduce_scatter(
    comm: Any, units: Iterable[Sequence[Buffer]], empty: Callable[..., Buffer] = np.empty
) -> Rounds:
    """Add up over the ranks of `comm`, so that each has, in place, the sums of its own blocks.

    units: each a block for each rank, one-dimensional and of the same size on all ranks. Small units go
    together, large ones a piece at a time. What lies in the blocks of others is no longer what it was.
    empty(shape, dtype): gives memory for what arrives, one array at a time.
    """
    for blocks in _pieces(units):
        for step in range(1, comm.size):
            given, kept = (blocks[(comm.rank - step - k) % comm.size] for k in (0, 1))
            size, packed = sum(part.size for part in kept), sum(part.size for part in given[1:])
            memory = empty((size + (packed and packed + given[0].size),), given[0].dtype)
            arrived = memory[:size]
            sent = np.concatenate(given, out=memory[size:]) if packed else given[0]
            yield _sent_on(comm, sent, arrived, SUMS)
            first = 0
            for part in kept:
                part += arrived[first : first + part.size]
                first += part.size


def allgather(comm: Any, blocks: Sequence[Buffer]) -> Rounds:
    """Give all ranks of `comm` everyone's block: blocks[r] is rank r's, and to be filled on the others."""
    for step in range(comm.size - 1):
        sent, arrived = (blocks[(comm.rank - step - k) % comm.size] for k in (0, 1))
        yield _sent_on(comm, sent, arrived, COPIES)


class Scratch:
    """Memory that stays, to be lent again and again: fresh memory costs a page fault every 4 KiB."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def __call__(self, shape: tuple[int], dtype: Any) -> Buffer:
        """Return the memory, as an array; it is the same each time."""
        size = shape[0] * np.dtype(dtype).itemsize
        if self._bytes.size < size:
            self._bytes = np.empty(size, np.uint8)
        return self._bytes[:size].view(dtype)


class UnderWay:
    """Rounds that are carried on by and by; the messages of the first set out at once."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._now = next(rounds, None)

    def test(self) -> bool:
        """Carry on as far as messages have arrived; return whether all is done."""
        while self._now is not None:
            if not self._now[0].Testall(self._now):
                return False
            self._now = next(self._rounds, None)
        return True

    def wait(self) -> None:
        """Carry out what is left."""
        while self._now is not None:
            self._now[0].Waitall(self._now)
            self._now = next(self._rounds, None)


def _sent_on(comm: Any, sent: Buffer, arrived: Buffer, tag: int) -> list[Any]:
    """Begin to give something to the next rank, and to take something from the one before."""
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    return [comm.Irecv(arrived, before, tag), comm.Isend(sent, after, tag)]


def _pieces(units: Iterable[Sequence[Buffer]]) -> Iterator[list[tuple[Buffer, ...]]]:
    """Yield what goes round at once: for each rank a part of its block of a unit, or its blocks of several."""
    together: list[list[Buffer]] = []
    size = 0
    for blocks in units:
        largest = max(block.nbytes for block in blocks)
        many = max(1, largest // PIECE)
        for k in range(many):
            together.append([b[k * b.size // many : (k + 1) * b.size // many] for b in blocks])
            size += largest // many
            if size >= PIECE:
                yield list(zip(*together, strict=True))
                together, size = [], 0
    if together:
        yield list(zip(*together, strict=True))
