"""Ring reduce-scatter and allgather on non-contiguous arrays, without persistent requests.

The messages are those of `ring_reduce_scatter` and `ring_allgather` (rings.py). `prepared` (execute.py) sets up
persistent requests for one fixed buffer; here each round posts its own, so the arrays may change between calls.
Predictions may assume another algorithm (choice.py): on up to three ranks of a node it has the same number of
rounds; on p ranks it saves p-1 - ceil(lg p) latencies of microseconds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.schedules.execute import Buffer

SUMS, COPIES = 12, 13  # tags: both collectives may be in flight
PIECE = 1 << 20  # approximate B of a reduction message; bounds the receive buffer
Rounds: TypeAlias = Iterator[list[Any]]  # of requests: a round completes before the next starts


def reduce_scatter(
    comm: Any, units: Iterable[Sequence[Buffer]], empty: Callable[..., Buffer] = np.empty
) -> Rounds:
    """Reduce-scatter over the ranks of `comm`, in place: each rank gets the sums of its own blocks.

    units: each one block per rank, one-dimensional and of the same size on all ranks. Small units are
    coalesced, large ones split. The blocks of other ranks are overwritten.
    empty(shape, dtype): allocates the receive buffer, one array at a time.
    """
    for blocks in _pieces(units):
        for step in range(1, comm.size):
            sends, reduces = (blocks[(comm.rank - step - k) % comm.size] for k in (0, 1))
            size, packed = sum(part.size for part in reduces), sum(part.size for part in sends[1:])
            memory = empty((size + (packed and packed + sends[0].size),), sends[0].dtype)
            arrived = memory[:size]
            sent = np.concatenate(sends, out=memory[size:]) if packed else sends[0]
            yield _shift(comm, sent, arrived, SUMS)
            first = 0
            for part in reduces:
                part += arrived[first : first + part.size]
                first += part.size


def allgather(comm: Any, blocks: Sequence[Buffer]) -> Rounds:
    """Allgather over the ranks of `comm`: blocks[r] is owned by rank r and filled on all others."""
    for step in range(comm.size - 1):
        sent, arrived = (blocks[(comm.rank - step - k) % comm.size] for k in (0, 1))
        yield _shift(comm, sent, arrived, COPIES)


class Scratch:
    """A reusable buffer: fresh memory costs a page fault every 4 KiB."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def __call__(self, shape: tuple[int], dtype: Any) -> Buffer:
        """Return the buffer as an array; the memory is the same in every call."""
        size = shape[0] * np.dtype(dtype).itemsize
        if self._bytes.size < size:
            self._bytes = np.empty(size, np.uint8)
        return self._bytes[:size].view(dtype)


class InFlight:
    """A collective in flight, progressed by `test`; the constructor posts the first round."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._now = next(rounds, None)

    def test(self) -> bool:
        """Progress as far as messages have arrived; return whether the collective is complete."""
        while self._now is not None:
            if not self._now[0].Testall(self._now):
                return False
            self._now = next(self._rounds, None)
        return True

    def wait(self) -> None:
        """Complete the collective."""
        while self._now is not None:
            self._now[0].Waitall(self._now)
            self._now = next(self._rounds, None)


def _shift(comm: Any, sent: Buffer, arrived: Buffer, tag: int) -> list[Any]:
    """Post a send to the next rank and a receive from the previous one."""
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    return [comm.Irecv(arrived, before, tag), comm.Isend(sent, after, tag)]


def _pieces(units: Iterable[Sequence[Buffer]]) -> Iterator[list[tuple[Buffer, ...]]]:
    """Yield the units of one ring pass: for each rank a piece of its block, or its blocks of several units."""
    coalesced: list[list[Buffer]] = []
    size = 0
    for blocks in units:
        largest = max(block.nbytes for block in blocks)
        pieces = max(1, largest // PIECE)
        for k in range(pieces):
            coalesced.append([b[k * b.size // pieces : (k + 1) * b.size // pieces] for b in blocks])
            size += largest // pieces
            if size >= PIECE:
                yield list(zip(*coalesced, strict=True))
                coalesced, size = [], 0
    if coalesced:
        yield list(zip(*coalesced, strict=True))
