"""A communicator of one rank, for runs within the calling process: MPI is not imported."""

from typing import Any

import numpy as np


class SingleRank:
    """Rank 0 of 1. It implements the mpi4py communicator methods that `train` calls."""

    rank, size = 0, 1

    def allreduce(self, value: Any, op: Any = None) -> Any:
        """Return the sum over one rank."""
        return value

    def bcast(self, value: Any, root: int = 0) -> Any:
        """Return the root's value."""
        return value

    def gather(self, value: Any, root: int = 0) -> list[Any]:
        """Return the values of all ranks."""
        return [value]

    def Barrier(self) -> None:
        """Return at once."""

    def Bcast(self, buffer: Any, root: int = 0) -> None:
        """Leave the buffer unchanged."""

    def Allreduce(self, send: Any, receive: Any, op: Any = None) -> None:
        """Copy `send` to `receive`; with MPI.IN_PLACE, leave it unchanged."""
        if isinstance(send, np.ndarray):
            receive[...] = send
