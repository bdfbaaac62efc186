"""The engine of one rank: python -m lib_dlhpc.launch.engine FOLDER ARGUMENTS, with a parent that reports its end.

Engines last as long as their job, so an engine that exits has failed, whatever its status. The parent then kills
itself by a signal, which mpiexec does not miss (see mpi.Overdue), so that the other engines, which may wait for this
one, end too.
"""

import os
import runpy
import signal
import sys
from pathlib import Path

from lib_dlhpc.launch.mpi import RANK, launcher_value
from lib_dlhpc.launch.task import failed
from lib_dlhpc.lifetime.watching import end_with

ENGINE = "ipyparallel.engine"


def main(folder: Path, words: list[str]) -> None:
    """Fork: the parent watches, the child is the engine."""
    own = os.getpid()
    child = os.fork() if hasattr(os, "fork") else 0
    if child == 0:
        if os.getpid() != own:
            end_with(own)
        sys.argv = [ENGINE, *words]
        runpy.run_module(ENGINE, run_name="__main__", alter_sys=True)
        return
    _, status = os.waitpid(child, 0)
    rank, code = launcher_value(RANK, 0), os.waitstatus_to_exitcode(status)
    failed(folder, f"rank {rank} of the engines", "Ended", f"with status {code}", rank)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
