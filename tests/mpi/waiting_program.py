"""An mpi4py program with one planted trouble, or none, which measures its cost by its own clocks.

    waiting_program.py TROUBLE [STORE]

Ranks of one machine read the same clock, so what somebody waited is the difference of two readings.
"""

import json
import sys
from time import perf_counter, sleep
from typing import Any

import numpy as np
from mpi4py import MPI

STEPS, BALANCED, LATE = 20, 40, 0.03  # s
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
trouble = sys.argv[1]
box = np.zeros(1000)
came: list[Any] = []  # when this rank called what may make it wait, or others
worked = 0.0  # s outside MPI since `first`
overslept = 0.0  # s that the machine let this rank sleep longer than it asked for
first = left = perf_counter()  # its first call; when it left its last one


def nap(seconds: float) -> None:
    """Work, as seen by the other ranks."""
    global overslept
    begin = perf_counter()
    sleep(seconds)
    overslept += perf_counter() - begin - seconds


def call(function, *arguments):
    """Call MPI; what went on since the last call is this rank's work, and the machine's."""
    global worked, left
    worked += perf_counter() - left
    result = function(*arguments)
    left = perf_counter()
    return result


def reads():
    """A function that reads one sample, by a store or from a file, slowly on rank 1; `came`: how long it took."""
    from lib_dlhpc.storage import open_store
    from lib_dlhpc.timeline import region, trace_reads

    class SlowDisk:
        def __init__(self, store) -> None:
            self.store = store

        def read(self, name: str) -> bytes:
            if rank == 1:
                nap(LATE)
            return self.store.read(name)

    store = SlowDisk(open_store(sys.argv[2]))
    traced, names = trace_reads(store), store.store.names

    def read(step: int) -> None:
        begin = perf_counter()
        if step % 2:
            traced.read(names[step % len(names)])
        else:
            with region("read a file", kind="input"):
                store.read(names[step % len(names)])
        came.append(perf_counter() - begin)

    return read


def balanced(draw) -> None:
    """A ring of messages and a collective a step, after work that is as long on all ranks, or on average.

    `came`: for how long it meant to work, and when it had worked, had the messages, and had the sum.
    """
    left, right = (rank - 1) % size, (rank + 1) % size
    there, back = np.zeros(1000), np.zeros(1000)
    came.append([0.0] + [perf_counter()] * 3)
    for _ in range(BALANCED):
        asked = draw()
        nap(asked)
        ready = perf_counter()
        comm.Sendrecv(box, right, 0, there, left)
        comm.Sendrecv(box, left, 1, back, right)
        joined = perf_counter()
        comm.Allreduce(MPI.IN_PLACE, box)
        came.append([asked, ready, joined, perf_counter()])


read = reads() if trouble == "slow disk" else None
first = left = perf_counter()
call(comm.Barrier)
if trouble == "none":
    balanced(lambda: LATE / 2)
elif trouble == "jitter":
    drawn = np.random.default_rng([7, rank])
    balanced(lambda: LATE / 2 + drawn.exponential(LATE / 4))
for step in range(0 if trouble in ("none", "jitter") else STEPS):
    call(comm.Barrier)
    if read is not None:
        read(step)
        nap(LATE / 3)
    elif trouble == "late sender":
        if rank == 1:
            nap(LATE)
            came.append(perf_counter())
            call(comm.Send, box, 0)
        elif rank == 0:
            came.append(perf_counter())
            call(comm.Recv, box, 1)
        if rank != 1:
            nap(LATE)  # nobody computes more than the others
    elif trouble == "late receiver":
        if rank == 0:
            nap(LATE)
            came.append(perf_counter())
            call(comm.Recv, box, 1)
        elif rank == 1:
            came.append(perf_counter())
            call(comm.Ssend, box, 0)
        if rank != 0:
            nap(LATE)
    else:
        nap(LATE * (2 if rank == size - 1 else 1))
        came.append(perf_counter())
        call(comm.Allreduce, MPI.IN_PLACE, box)

worked += perf_counter() - left
everyone = comm.gather((came, worked, first, overslept))
if rank == 0:
    print(json.dumps(everyone))
