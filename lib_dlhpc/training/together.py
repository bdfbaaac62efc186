"""What the ranks of a run do together: sums and means over all of them, and one rank's word."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lib_dlhpc.training.layers.kept import Array

PIECE = 1024 * 1024  # bytes; MPI's sums take as much memory of their own as their message has


def add_up(comm: Any, array: Array) -> None:
    """Put the sum over all ranks of `comm` where each had its own values, a piece at a time.

    array: in one piece of memory, and of the same size on all ranks.
    """
    from mpi4py import MPI

    flat = array.reshape(-1)
    step = max(1, PIECE // flat.itemsize)
    for first in range(0, flat.size, step):
        comm.Allreduce(MPI.IN_PLACE, flat[first : first + step], MPI.SUM)


def sums(comm: Any) -> Callable[[Array], Array]:
    """Return the function that gives the sum of an array over all ranks of `comm`."""

    def total(values: Array) -> Array:
        result = np.array(values, order="C")
        add_up(comm, result)
        return result

    return total


def mean(comm: Any, values: Array) -> None:
    """Put the mean over all ranks where each had its own values."""
    if comm.size > 1:
        np.divide(sums(comm)(values), values.dtype.type(comm.size), out=values)


def first_says(comm: Any, *mine: bool) -> tuple[bool, ...]:
    """Return what rank 0 says: clocks differ, and all ranks must take the same way."""
    if comm.size == 1:
        return mine
    said = np.array(mine, np.uint8)
    comm.Bcast(said)
    return tuple(bool(each) for each in said)
