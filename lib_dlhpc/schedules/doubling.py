"""Partners 1, 2, 4 ... ranks away: recursive doubling, and Rabenseifner's halving and doubling.

q = floor(lg p). Ranks beyond 2^q fold into a neighbour before and are told the result after. Source:
Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH" (2005),
section 4.5.
"""

from collections.abc import Iterator

import numpy as np

from lib_dlhpc.schedules.compose import within
from lib_dlhpc.schedules.rings import cuts
from lib_dlhpc.schedules.rounds import Ints, Round, messages


def recursive_doubling(ranks: int, elements: int) -> Iterator[Round]:
    """Allreduce: exchange everything with the partner 1, 2, 4 ... ranks away.

    lg p (alpha + n beta + n gamma); with folding, 2 alpha + 2 n beta + n gamma more.
    """
    core, surplus, host = _fold(ranks)
    if len(surplus):
        yield messages(surplus, host, 0, elements, True)
    yield from within(_doubling(len(core), elements), core)
    if len(surplus):
        yield messages(host, surplus, 0, elements, False)


def rabenseifner(ranks: int, elements: int) -> Iterator[Round]:
    """Allreduce: reduce-scatter by recursive halving, nearest partner first, then the way back.

    2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma; with folding, 2 alpha + 2 n beta + n gamma more.
    """
    core, surplus, host = _fold(ranks)
    if len(surplus):
        yield messages(surplus, host, 0, elements, True)
    yield from within(_halving_doubling(len(core), elements), core)
    if len(surplus):
        yield messages(host, surplus, 0, elements, False)


def _doubling(ranks: int, elements: int) -> Iterator[Round]:
    rank = np.arange(ranks)
    for distance in _powers(ranks):
        yield messages(rank, rank ^ distance, 0, elements, True)


def _halving_doubling(ranks: int, elements: int) -> Iterator[Round]:
    cut, rank = cuts(elements, ranks), np.arange(ranks)
    first = np.zeros(ranks, np.int64)  # of the blocks that the rank still works on
    way_back = []
    for distance in _powers(ranks):
        half = ranks // (2 * distance)
        upper = rank & distance != 0  # these ranks keep the upper half of their blocks
        kept, given = first + half * upper, first + half * ~upper
        yield messages(rank, rank ^ distance, cut[given], cut[given + half] - cut[given], True)
        way_back.append((distance, cut[kept], cut[kept + half] - cut[kept]))
        first = kept
    for distance, offset, count in reversed(way_back):
        yield messages(rank, rank ^ distance, offset, count, False)


def _powers(ranks: int) -> list[int]:
    """1, 2, 4 ... below ranks."""
    return [2**k for k in range((ranks - 1).bit_length())]


def _fold(ranks: int) -> tuple[Ints, Ints, Ints]:
    """Return 2^q ranks that stay, the surplus ranks, and the neighbour that stands in for each of those."""
    many = ranks - (1 << ranks.bit_length() - 1)
    surplus = 2 * np.arange(many) + 1
    return np.setdiff1d(np.arange(ranks), surplus), surplus, surplus - 1
