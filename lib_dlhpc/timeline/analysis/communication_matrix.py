"""The communication matrix: bytes and messages from each rank to each other, and message sizes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.analysis.calls import COLLECTIVE, COMMUNICATION, RECEIVE, SEND
from lib_dlhpc.timeline.table import Timeline

MOST_RANKS = 8192  # a matrix of twice as many would not fit into the memory of a laptop


@dataclass(frozen=True, eq=False)
class Matrix:
    """Messages between two ranks, sender first; the volume of collectives is by rank.

    bytes, messages (ranks, ranks); collective_bytes, collective_calls (ranks,); histogram: messages of
    2^k to 2^(k+1) - 1 bytes at k + 1, empty ones at 0.
    """

    bytes: NDArray[np.int64]
    messages: NDArray[np.int64]
    collective_bytes: NDArray[np.int64]
    collective_calls: NDArray[np.int64]
    histogram: NDArray[np.int64]


def matrix(table: Timeline) -> Matrix:
    """Return the communication matrix of a table. Raises SpecError for more ranks than it can be drawn for.

    Counted are sends and messages in flight; receives only where no send was recorded at all.
    """
    ranks = table.ranks
    if ranks > MOST_RANKS:
        raise SpecError(f"{ranks} ranks: a communication matrix is of at most {MOST_RANKS}.")
    rows = ((table.kind == SEND) | (table.kind == COMMUNICATION)) & (table.peer >= 0)
    turned = False
    if not rows.any():
        rows, turned = (table.kind == RECEIVE) & (table.peer >= 0), True
    source, target, size = table.rank[rows], table.peer[rows], table.bytes[rows]
    if turned:
        source, target = target, source
    pair = source.astype(np.int64) * ranks + target
    shape = (ranks, ranks)
    moved = _sums(pair, size, ranks * ranks).reshape(shape)
    count = np.bincount(pair, minlength=ranks * ranks).reshape(shape)
    together = (table.kind == COLLECTIVE) | ((table.kind == COMMUNICATION) & (table.peer < 0))
    who = table.rank[together]
    return Matrix(
        moved,
        count,
        _sums(who, table.bytes[together], ranks),
        np.bincount(who, minlength=ranks),
        _histogram(size),
    )


def _sums(at: NDArray[np.int64], values: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return sums of whole numbers: exact as long as they are below 2^53."""
    return np.rint(np.bincount(at, weights=values, minlength=length)).astype(np.int64)


def _histogram(size: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(size):
        return np.zeros(1, np.int64)
    _, exponent = np.frexp(size.astype(np.float64))  # 2^(e-1) <= size < 2^e; 0 for 0
    return np.bincount(np.maximum(exponent, 0))
