"""Offload bandwidth: pieces written to the trainer's file and read back, on all ranks at once.

Out-of-core training writes about as much as it reads, and one thread of a rank does both. So a point is the time to
write one piece and read another, `size` B in each direction.
"""

from contextlib import ExitStack
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from lib_dlhpc.lifetime.owned import temporary_folder
from lib_dlhpc.training.disk import Disk

SIZES = tuple(2**k for k in range(15, 24, 2))  # B, 32 KiB to 8 MiB; smaller arrays stay in memory
APART = 1 << 25  # B in each direction of the pieces in rotation: more than a core's private cache
SHORT = 1 << 23  # B in each direction between two clock readings
LEAST_ROUNDS = 5


def measure(comm: Any, seconds: float) -> list[dict[str, Any]]:
    """Return the points, each with one time for each round: that of the slowest rank.

    Returns no points if some rank cannot create such a file: the disk is full, or the system lacks preadv.
    """
    until = monotonic() + seconds
    arrays = np.ones((2, APART), np.uint8)
    with ExitStack() as stack:
        disk = _opened(stack, arrays)
        if not comm.allreduce(disk is not None, min):
            return []
        assert disk is not None
        rounds: list[list[float]] = []
        while len(rounds) < LEAST_ROUNDS or comm.bcast(monotonic() < until):
            rounds.append([])
            for size in SIZES:
                comm.Barrier()
                took = _turns(disk, arrays, size, len(rounds))
                rounds[-1].append(comm.allreduce(took, max))
    return [
        {"size": size, "seconds": [times[index] for times in rounds]}
        for index, size in enumerate(SIZES)
    ]


def _opened(stack: ExitStack, arrays: Any) -> Disk | None:
    """Return a file that holds both arrays, written once so that its space is allocated."""
    try:
        folder = stack.enter_context(temporary_folder("dlhpc-disk-"))
        disk = stack.enter_context(Disk(folder, "probe"))
        disk.extend(arrays.nbytes)
        disk.wait(disk.write(0, arrays))
    except (OSError, RuntimeError):
        return None
    return disk


def _turns(disk: Disk, arrays: Any, size: int, turn: int) -> float:
    """Return the mean s to write one piece and read one, over SHORT bytes."""
    count, last = max(1, SHORT // size), 0
    first = turn * count * size % APART
    begin = perf_counter()
    for index in range(first, first + count * size, size):
        disk.write(index, arrays[0, index : index + size])
        last = disk.read(APART + index, arrays[1, index : index + size])
    disk.wait(last)
    return (perf_counter() - begin) / count
