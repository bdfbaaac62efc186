"""One rank of a program that the run folder names: python -m lib_dlhpc.launch.program FOLDER RANKS."""

import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from lib_dlhpc.launch.folder import LOG
from lib_dlhpc.launch.task import failed, read_task


def main(folder: Path, expected: int) -> None:
    """Run one rank of a program. An error of one rank aborts all: the others would wait for it."""
    task = read_task(folder)
    assert task is not None
    comm: Any = None
    if expected > 1:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        if comm.size != expected:
            sys.exit(f"{expected} ranks were asked for, and {comm.size} started")
    rank = comm.rank if comm is not None else 0
    sys.argv = [task.path, *task.arguments]
    sys.path[0] = str(Path(task.path).parent)
    try:
        runpy.run_path(task.path, run_name="__main__")
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        echo = type(error).__module__.startswith("mpi4py")
        failed(folder, f"rank {rank}", type(error).__name__, str(error), rank, echo)
        if comm is None:
            print(trace, end="", file=sys.stderr, flush=True)
            sys.exit(1)
        with open(folder / LOG, "a", encoding="utf-8") as log:
            log.write(trace)  # through the launcher, part of it would be lost in the abort
        comm.Abort(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
