"""An mpi4py program with one planted trouble, which says by its own clocks what it cost: waiting_program.py TROUBLE.

Ranks of one machine read the same clock, so what somebody waited is the difference of two readings.
"""

import json
import sys
from time import perf_counter, sleep

import numpy as np
from mpi4py import MPI

STEPS, LATE = 20, 0.03  # s
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
trouble = sys.argv[1]
box = np.zeros(1000)
came: list[float] = []  # when this rank called what may make it wait, or others
worked = 0.0  # s outside MPI


def work(seconds: float) -> None:
    global worked
    begin = perf_counter()
    sleep(seconds)
    worked += perf_counter() - begin


for _ in range(STEPS):
    comm.Barrier()
    if trouble == "late sender":
        if rank == 1:
            work(LATE)
            came.append(perf_counter())
            comm.Send(box, 0)
        elif rank == 0:
            came.append(perf_counter())
            comm.Recv(box, 1)
        if rank != 1:
            work(LATE)  # nobody computes more than the others
    elif trouble == "late receiver":
        if rank == 0:
            work(LATE)
            came.append(perf_counter())
            comm.Recv(box, 1)
        elif rank == 1:
            came.append(perf_counter())
            comm.Ssend(box, 0)
        if rank != 0:
            work(LATE)
    else:
        work(LATE * (2 if rank == size - 1 else 1))
        came.append(perf_counter())
        comm.Allreduce(MPI.IN_PLACE, box)

everyone = comm.gather((came, worked))
if rank == 0:
    print(json.dumps(everyone))
