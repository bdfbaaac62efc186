"""What all ranks of a store do together: barriers that sleep, results and errors that all share."""

import time
from collections.abc import Callable
from typing import Any

from lib_dlhpc.storage.errors import StoreError

PAUSE = 2e-4  # s, polling interval of a barrier


def nodes_of(comm: Any, ranks_per_node: int) -> list[int]:
    """Return the node of each rank."""
    if ranks_per_node < 0:
        raise StoreError(f"ranks_per_node: {ranks_per_node}. Legal: a whole number from 0 on.")
    if comm is None or comm.size == 1:
        return [0]
    if ranks_per_node:
        return [rank // ranks_per_node for rank in range(comm.size)]
    from mpi4py import MPI

    sharing = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    firsts = comm.allgather(sharing.bcast(comm.rank))
    sharing.Free()
    return [sorted(set(firsts)).index(first) for first in firsts]


def from_first(comm: Any, action: Callable[[], Any]) -> Any:
    """Run the action on rank 0 and broadcast its result, or its StoreError."""
    if comm is None or comm.size == 1:
        return action()
    found = tried(action) if comm.rank == 0 else None
    quiet_barrier(comm)
    found = comm.bcast(found)
    if isinstance(found, StoreError):
        raise found
    return found


def check_all(comm: Any, error: StoreError | None) -> None:
    """Raise the StoreError of any rank on every rank."""
    if comm is None or comm.size == 1:
        if error:
            raise error
        return
    for rank, text in enumerate(comm.allgather(str(error or ""))):
        if text:
            raise StoreError(f"Rank {rank} cannot open its part: {text}")


def quiet_barrier(comm: Any) -> None:
    """Barrier that sleeps instead of spinning: late ranks may need the core."""
    barrier = comm.Ibarrier()
    while not barrier.Test():
        time.sleep(PAUSE)


def tried(action: Callable[[], Any]) -> Any:
    """Return the result of an action, or its StoreError."""
    try:
        return action()
    except StoreError as error:
        return error
