"""Ring and Rabenseifner written in numpy against the MPI library's own Allreduce, in one run on local ranks.

    python benchmarks/collectives.py            4 ranks, 16 MB
    python benchmarks/collectives.py --ranks 2 --megabytes 1

Prints p10, median and p90 of the times and the ratio of the medians. The rounds alternate between the
three, so that a busy machine is equally busy for all.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from _quick import add_quick

ALGORITHMS = ("ring", "rabenseifner")
MOST = 2.0  # times the library


def main() -> None:
    """Start the ranks, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--megabytes", type=float, default=16)
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--rank-of-many", action="store_true", help=argparse.SUPPRESS)
    add_quick(parser)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.ranks, arguments.megabytes, arguments.repeat = 2, 0.1, 3
    if arguments.rank_of_many:
        return measure(int(arguments.megabytes * 1e6), arguments.repeat)
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    mpiexec = beside or shutil.which("mpiexec")
    if mpiexec is None:
        sys.exit("No mpiexec beside this Python or on the PATH.")
    command = [mpiexec, "-n", str(arguments.ranks), sys.executable, *sys.argv, "--rank-of-many"]
    sys.exit(subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode)


def measure(size: int, repeat: int) -> None:
    """Time all of them in turn on this rank; rank 0 prints."""
    from contextlib import ExitStack

    from mpi4py import MPI

    from lib_dlhpc.schedules import prepared, schedule

    comm = MPI.COMM_WORLD
    buffer = np.empty(size // 4, np.float32)
    actions: dict[str, Callable[[], None]] = {
        "MPI_Allreduce": lambda: comm.Allreduce(MPI.IN_PLACE, buffer)
    }
    with ExitStack() as stack:
        for name in ALGORITHMS:
            ours = schedule(name, comm.size, buffer.size)
            actions[name] = stack.enter_context(prepared(ours, comm, buffer))
        times: dict[str, list[float]] = {name: [] for name in actions}
        for turn in range(repeat + 3):
            for name, action in actions.items():
                buffer[:] = comm.rank + 1
                comm.Barrier()
                start = time.perf_counter()
                action()
                longest = comm.allreduce(time.perf_counter() - start, MPI.MAX)
                assert buffer[0] == buffer[-1] == comm.size * (comm.size + 1) / 2
                if turn >= 3:
                    times[name].append(longest)
    if comm.rank == 0:
        print(f"allreduce of {size / 1e6:g} MB (float32) on {comm.size} ranks, {repeat} times each")
        library = float(np.median(times["MPI_Allreduce"]))
        for name, values in times.items():
            low, middle, high = np.percentile(values, [10, 50, 90])
            limit = f"   (at most {MOST})" if name in ALGORITHMS else ""
            print(
                f"{name:<16} p10 {low * 1e3:7.2f}  median {middle * 1e3:7.2f}  p90 {high * 1e3:7.2f} ms"
                f"   {middle / library:5.2f} x{limit}"
            )


if __name__ == "__main__":
    main()
