"""One clock for all ranks: how far each is from rank 0's, from round trips; in between, along a line.

Cristian, "Probabilistic clock synchronization", Distributed Computing 3 (1989): the quickest round trip
gives the best offset, to within half of its duration. A smaller value is no offset:
ranks of one machine share its clock, and stay exactly together.
"""

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray


def offset(comm: Any, rounds: int = 20) -> int:
    """Return what to add to this rank's clock to read rank 0's, in ns; all ranks of `comm` take part."""
    theirs = np.empty(1, np.int64)
    best, shift = 2**63, 0
    for rank in range(1, comm.size):
        for _ in range(rounds):
            if comm.rank == rank:
                start = perf_counter_ns()
                comm.Sendrecv(np.array([start]), 0, recvbuf=theirs, source=0)
                stop = perf_counter_ns()
                if stop - start < best:
                    best, shift = stop - start, int(theirs[0]) - (start + stop) // 2
            elif comm.rank == 0:
                comm.Recv(theirs, rank)
                comm.Send(np.array([perf_counter_ns()]), rank)
    return shift if abs(shift) > best / 2 else 0


def on_rank_0(times: NDArray[np.int64], clocks: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return times of a rank's clock as those of rank 0's; `clocks` are (time, offset), both in ns.

    One offset holds throughout; from the first of several to the last, the clock drifts along a line.
    """
    if not clocks:
        return times
    (begin, first), (end, last) = clocks[0], clocks[-1]
    if first == last or end == begin:
        return times + first
    drift = (last - first) / (end - begin)
    return times + first + np.rint(drift * (times - begin)).astype(np.int64)
