"""Collectives over the ranks of a run: sums, means, and a broadcast decision of rank 0."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array

PIECE = 1024 * 1024  # bytes; MPI_Allreduce allocates as much memory as its message has


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


def decided_by_rank_zero(comm: Any, *mine: bool) -> tuple[bool, ...]:
    """Return rank 0's decision: clocks differ, and all ranks must branch alike."""
    if comm.size == 1:
        return mine
    decision = np.array(mine, np.uint8)
    comm.Bcast(decision)
    return tuple(bool(each) for each in decision)
