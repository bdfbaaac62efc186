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
    rank, right, offset, count = _turned(ranks, elements)
    reduce = np.ones(ranks, dtype=np.bool_)
    for step in range(ranks - 1):
        yield Round(rank, right, offset[-step - 1], count[-step - 1], reduce)


def ring_allgather(ranks: int, elements: int) -> Iterator[Round]:
    """Allgather: block b sets out at rank b and is handed on until everyone has it.

    (p-1) alpha + (p-1)/p n beta.
    """
    rank, right, offset, count = _turned(ranks, elements)
    copy = np.zeros(ranks, dtype=np.bool_)
    for step in range(ranks - 1):
        yield Round(rank, right, offset[-step], count[-step], copy)


def _turned(ranks: int, elements: int) -> tuple[Ints, Ints, list[Ints], list[Ints]]:
    """Ranks, their right neighbours, and for each k the offset and count of blocks (rank + k) mod p.

    All are views of two arrays, so they cost nothing; blocks of one size have one count for all k.
    """
    cut, rank = cuts(elements, ranks), np.arange(ranks)
    offset, count = np.tile(cut[:-1], 2), np.tile(np.diff(cut), 2)
    turns = [slice(k, k + ranks) for k in range(ranks)]
    counts = [count[k] for k in turns] if elements % ranks else [count[:ranks]] * ranks
    return rank, (rank + 1) % ranks, [offset[k] for k in turns], counts
