"""One rank in a network lab: allreduces are correct and use its own interface only; rank 0 reports."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


def sent():
    """B sent by each network interface."""
    rows = [line.split() for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]]
    return {row[0].rstrip(":"): int(row[9]) for row in rows}


buffer = np.full(50_000, comm.rank + 1, np.float64)
before = sent()
comm.Allreduce(MPI.IN_PLACE, buffer)
comm.Barrier()
assert (buffer == comm.size * (comm.size + 1) / 2).all()
after = sent()
assert sorted(after) == ["lo", "net0"], after
assert comm.size == 1 or after["net0"] - before["net0"] > buffer.nbytes / 2
if comm.rank == 0:
    print(f"{comm.size} ranks, all right, {' '.join(sys.argv[1:])}")
