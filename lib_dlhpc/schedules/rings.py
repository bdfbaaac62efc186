"""Rings: everyone hands a block to the next rank at every step, so every link is busy all the time.

p ranks, n elements, block b = elements b n / p .. (b + 1) n / p. Sources: Patarasuk & Yuan, "Bandwidth
optimal all-reduce algorithms for clusters of workstations" (2009), section 3; Thakur, Rabenseifner &
Gropp, "Optimization of collective communication operations in MPICH" (2005), sections 4.1 and 4.5.
"""

from collections.abc import Iterator

import numpy as np

from lib_dlhpc.schedules.compose import then
from lib_dlhpc.schedules.rounds import Ints, Round


def cuts(elements: int, parts: int) -> Ints:
    """Return where `parts` blocks of nearly equal size begin, and the end: parts + 1 positions.

    No block is larger than ceil(elements / parts).
    """
    return np.arange(parts + 1, dtype=np.int64) * elements // parts


def ring(ranks: int, elements: int) -> Iterator[Round]:
    """Allreduce: sum the blocks on one way round, hand out the sums on the next.

    2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma.
    """
    yield from then(ring_reduce_scatter(ranks, elements), ring_allgather(ranks, elements))


def ring_reduce_scatter(ranks: int, elements: int) -> Iterator[Round]:
    """Reduce-scatter: block b sets out at rank b + 1 and comes home to rank b with every contribution.

    (p-1) alpha + (p-1)/p n beta + (p-1)/p n gamma.
    """
    rank, right, offset, count = _twice_round(ranks, elements)
    reduce = np.ones(ranks, dtype=np.bool_)
    for step in range(ranks - 1):
        block = slice(ranks - step - 1, 2 * ranks - step - 1)  # rank - step - 1, modulo p
        yield Round(rank, right, offset[block], count[block], reduce)


def ring_allgather(ranks: int, elements: int) -> Iterator[Round]:
    """Allgather: block b sets out at rank b and is handed on until everyone has it.

    (p-1) alpha + (p-1)/p n beta.
    """
    rank, right, offset, count = _twice_round(ranks, elements)
    copy = np.zeros(ranks, dtype=np.bool_)
    for step in range(ranks - 1):
        block = slice(ranks - step, 2 * ranks - step)  # rank - step, modulo p
        yield Round(rank, right, offset[block], count[block], copy)


def _twice_round(ranks: int, elements: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Ranks, their right neighbours, and offset and count of blocks 0 .. p-1, 0 .. p-1: slices cost nothing."""
    cut, rank = cuts(elements, ranks), np.arange(ranks)
    return rank, (rank + 1) % ranks, np.tile(cut[:-1], 2), np.tile(np.diff(cut), 2)
