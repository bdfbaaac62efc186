"""Which send belongs to which receive, and which calls are one collective: by the order that MPI guarantees.

Messages on one communicator with one source, target and tag do not overtake each other: the nth that was
sent goes to the receive that was posted nth among those that got one of them (MPI 5.0, section 3.5). The
ranks of a communicator call its collectives in one order: the nth calls of all are one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Ints


def match_messages(send: NDArray[Any], receive: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the row of each send and of the receive that got it, for those that found each other.

    Both are structured, with comm, tag and order, source and target (ranks); rows may have any order.
    """
    both = np.concatenate([send, receive])
    key = np.zeros(len(both), np.int64)
    for column in ("comm", "source", "target", "tag"):
        values, number = np.unique(both[column], return_inverse=True)
        # Numbered anew each time: the product of the four could be more than an integer holds.
        _, key = np.unique(key * len(values) + number, return_inverse=True)
    sends, nth_send = _nth(key[: len(send)], send["order"])
    receives, nth_receive = _nth(key[len(send) :], receive["order"])
    most = max(len(both), 1)
    one, other = key[sends] * most + nth_send, key[len(send) + receives] * most + nth_receive
    _, at, there = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    return sends[at], receives[there]


def match_collectives(comm: Ints, order: Ints) -> Ints:
    """Return a number for each call, from 0 on; calls of one collective have the same."""
    _, comm = np.unique(comm, return_inverse=True)
    counts, order = np.unique(order, return_inverse=True)
    _, number = np.unique(comm * max(len(counts), 1) + order, return_inverse=True)
    return number.astype(np.int64)


def _nth(key: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Return the rows sorted by key, then order, and how many of the same key are before each."""
    rows = np.lexsort((order, key))
    ordered = key[rows]
    return rows, np.arange(len(rows)) - np.searchsorted(ordered, ordered)
