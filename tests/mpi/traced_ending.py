"""A program of several ranks of which one, rank 1, comes to an end of its own."""

import os
import signal
import sys

from mpi4py import MPI

from lib_dlhpc.timeline import region

comm, how = MPI.COMM_WORLD, sys.argv[1]
with region("first"):
    comm.Barrier()
comm.allgather(comm.rank)
if how == "interrupted":
    signal.raise_signal(signal.SIGINT)
if comm.rank == 1:
    for _ in range(comm.size - 1):
        comm.recv()
else:
    comm.send("this far", 1)  # what went before is over on this rank, too
if comm.rank == 1:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raises":
        raise ValueError("no luck today")
    if how == "exits":
        sys.exit(3)
if how in ("killed", "raises"):
    comm.recv(source=1)  # never comes
if how == "finalizes":
    comm.Barrier()
    MPI.Finalize()
