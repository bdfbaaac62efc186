"""A program as anybody might write it with mpi4py: it has no tracing in it. One rank of it is late.

    mpiexec -n 4 python program.py --rank 2 --by 0.02 --before

Each rank works, exchanges messages with its two neighbors, works again and meets all others. Work is asleep:
somewhere an accelerator computes. What a rank really slept it writes into a file, to compare a trace with.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI


def sleep(seconds: float) -> float:
    """Sleep, and return for how long it really was."""
    since = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - since


def main() -> None:
    """Run all steps, with what is planted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--work", type=float, default=0.03)
    parser.add_argument("--bytes", type=int, default=100_000)
    parser.add_argument("--rank", type=int, default=-1, help="the late one")
    parser.add_argument("--by", type=float, default=0.0, help="s a step")
    parser.add_argument("--before", action="store_true", help="late before it sends, not behind")
    parser.add_argument("--slept", type=Path, help="folder for the seconds slept")
    options = parser.parse_args()

    world = MPI.COMM_WORLD
    rank, ranks = world.rank, world.size
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    late = options.by if rank == options.rank else 0.0
    before, after = 2 / 3 * options.work, 1 / 3 * options.work
    if options.before:  # all do as much, the others behind their messages
        before, after = before + late, after + options.by - late
    else:
        after += late
    sent, came = np.zeros(options.bytes // 8), np.zeros(options.bytes // 8)
    one, total, slept = np.ones(1), np.zeros(1), np.zeros((options.steps, 2))

    world.Barrier()
    for step in range(options.steps):
        slept[step, 0] = sleep(before)
        going = [world.Isend(sent, right), world.Isend(sent, left)]
        world.Recv(came, left)
        world.Recv(came, right)
        slept[step, 1] = sleep(after)
        MPI.Request.Waitall(going)
        world.Allreduce(one, total)
    if options.slept is not None:
        np.save(options.slept / f"slept-{rank}.npy", slept)


if __name__ == "__main__":
    main()
