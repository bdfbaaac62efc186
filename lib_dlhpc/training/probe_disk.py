"""The way to where things wait out of core: pieces written to the trainer's file and read back, on all ranks at once.

Out of core about as much goes there as comes back, and one thread of a rank moves both. So a point is the seconds in
which one piece has been written and another one read: those of `size` B in each direction.
"""

from contextlib import ExitStack
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from lib_dlhpc.lifetime.owned import temporary_folder
from lib_dlhpc.training.disk import Disk

SIZES = tuple(2**k for k in range(15, 24, 2))  # B, 32 KiB to 8 MiB; what is smaller stays in memory
APART = 1 << 25  # B each way of the pieces that take turns: more than a core's own cache holds
SHORT = 1 << 23  # B each way between two looks at the clock
LEAST_ROUNDS = 5


def measure(comm: Any, seconds: float) -> list[dict[str, Any]]:
    """Return the points, each with a time for each round: that of the slowest rank.

    There are none where some rank cannot have such a file: there is no room, or the system lacks what it takes.
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
        {"size": size, "seconds": [times[at] for times in rounds]} for at, size in enumerate(SIZES)
    ]


def _opened(stack: ExitStack, arrays: Any) -> Disk | None:
    """Return a file that holds both arrays, all of it written once: from then on no room is asked for."""
    try:
        folder = stack.enter_context(temporary_folder("dlhpc-disk-"))
        disk = stack.enter_context(Disk(folder, "probe"))
        disk.extend(arrays.nbytes)
        disk.wait(disk.write(0, arrays))
    except (OSError, RuntimeError):
        return None
    return disk


def _turns(disk: Disk, arrays: Any, size: int, turn: int) -> float:
    """Return the s of a piece written and one read: the mean of as many as make up SHORT."""
    count, last = max(1, SHORT // size), 0
    first = turn * count * size % APART
    begin = perf_counter()
    for at in range(first, first + count * size, size):
        disk.write(at, arrays[0, at : at + size])
        last = disk.read(APART + at, arrays[1, at : at + size])
    disk.wait(last)
    return (perf_counter() - begin) / count
