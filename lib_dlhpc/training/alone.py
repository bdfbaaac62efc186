"""A communicator of one rank, for a run in the process that asks for it: no MPI is imported."""

from typing import Any

import numpy as np


class Alone:
    """Rank 0 of 1. It has what `train` calls of mpi4py's communicators."""

    rank, size = 0, 1

    def allreduce(self, value: Any, op: Any = None) -> Any:
        """Return the sum over one rank."""
        return value

    def bcast(self, value: Any, root: int = 0) -> Any:
        """Return what rank 0 has."""
        return value

    def gather(self, value: Any, root: int = 0) -> list[Any]:
        """Return what all ranks have."""
        return [value]

    def Barrier(self) -> None:
        """Wait for nobody."""

    def Bcast(self, buffer: Any, root: int = 0) -> None:
        """Leave the buffer as it is."""

    def Allreduce(self, send: Any, receive: Any, op: Any = None) -> None:
        """Copy `send` to `receive`; MPI.IN_PLACE, which is no array, leaves it as it is."""
        if isinstance(send, np.ndarray):
            receive[...] = send
