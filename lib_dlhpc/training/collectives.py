"""Collectives over the ranks of a run: sums, means, and decisions of rank 0."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array

PIECE = 1024 * 1024  # bytes; MPI_Allreduce allocates as much memory as its message has
MOST_STEPS = 100  # between two decisions: steps may become longer


def allreduce_in_place(comm: Any, array: Array) -> None:
    """Allreduce an array in place, a piece at a time.

    array: contiguous, and of the same size on all ranks.
    """
    from mpi4py import MPI

    flat = array.reshape(-1)
    step = max(1, PIECE // flat.itemsize)
    for first in range(0, flat.size, step):
        comm.Allreduce(MPI.IN_PLACE, flat[first : first + step], MPI.SUM)


def allreduce_packed(comm: Any, arrays: Sequence[Array]) -> None:
    """Allreduce arrays in place, the small ones packed into one message."""
    small = [array for array in arrays if array.nbytes < PIECE]
    for array in arrays:
        if array.nbytes >= PIECE:
            allreduce_in_place(comm, array)
    if not small:
        return
    packed, first = np.concatenate([array.ravel() for array in small]), 0
    allreduce_in_place(comm, packed)
    for array in small:
        array[...] = packed[first : first + array.size].reshape(array.shape)
        first += array.size


def allreduce_of(comm: Any) -> Callable[[Array], Array]:
    """Return a function that returns the sum of an array over all ranks of `comm`."""

    def total(values: Array) -> Array:
        result = np.array(values, order="C")
        allreduce_in_place(comm, result)
        return result

    return total


def mean(comm: Any, values: Array) -> None:
    """Replace each rank's values by the mean over all ranks."""
    if comm.size > 1:
        np.divide(allreduce_of(comm)(values), values.dtype.type(comm.size), out=values)


class Decisions:
    """Decisions by rank 0's clock: clocks differ, and all ranks must branch alike.

    Rank 0 looks at its clock about every `seconds`, as a broadcast in each step would delay small steps by some
    percent. A single rank looks in each.
    """

    def __init__(self, comm: Any, seconds: float) -> None:
        self.comm, self.seconds = comm, seconds
        self._steps, self._left, self._since = 0, 0, monotonic()

    def decided(self, *mine: bool) -> tuple[bool, ...]:
        """Return rank 0's decision at a step's end, all False between two looks; all ranks call this."""
        if self.comm.size == 1:
            return mine
        if self._left:
            self._left -= 1
            return (False,) * len(mine)
        step_seconds = (monotonic() - self._since) / max(self._steps, 1)
        steps = min(int(self.seconds / max(step_seconds, 1e-9)), MOST_STEPS) if self._steps else 0
        decision = np.array([steps, *mine], np.int64)
        self.comm.Bcast(decision)
        self._left, *found = decision.tolist()
        self._steps, self._since = self._left + 1, monotonic()
        return tuple(bool(flag) for flag in found)
