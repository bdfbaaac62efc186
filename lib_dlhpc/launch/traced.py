"""Run an unmodified mpi4py program with its calls recorded: python -m lib_dlhpc.launch.traced FOLDER SCRIPT ...

Each rank writes its rows into files of FOLDER as it goes, so they are there however it ends; nothing is sent
to anybody. `-m MODULE` may stand in place of SCRIPT. Started by trace_run, once a rank.
"""

import os
import runpy
import sys
import time
import traceback
from pathlib import Path

from lib_dlhpc.timeline.clocks import offset
from lib_dlhpc.timeline.communicator import trace_comm
from lib_dlhpc.timeline.recorder import HERE

PATIENCE = (
    5.0  # s that a rank which has ended waits for the others to end, to compare clocks once more
)


def part_of(folder: Path, rank: int) -> Path:
    """Return where a rank keeps its rows."""
    return folder / f"rank-{rank}.rows"


class Traced:
    """The world of a program that is traced, from its start to its end."""

    def __init__(self, folder: Path) -> None:
        from mpi4py import MPI

        self.mpi, self.ended = MPI, False
        self.own = MPI.COMM_WORLD.Dup()  # what the tracer says is no message of the program
        HERE.keep_in(part_of(folder, self.own.rank))
        HERE.told(ranks=self.own.size)
        self._finalize = MPI.Finalize
        vars(MPI).update(COMM_WORLD=trace_comm(MPI.COMM_WORLD), Finalize=self._finalize_traced)

    def end(self, how: str) -> None:
        """Note how the program ended on this rank, and what its clock says by now."""
        if self.ended:
            return
        self.ended, HERE.on = True, False
        HERE.told(ended=how)
        if not self.mpi.Is_finalized() and self._all_here():
            HERE.clock(offset(self.own))

    def _all_here(self) -> bool:
        """Wait for the other ranks to end; not for ever: one may be no more, or wait for a message."""
        request, until = self.own.Ibarrier(), time.monotonic() + PATIENCE
        while not request.Test():
            if time.monotonic() > until:
                return False
            time.sleep(1e-3)
        return True

    def _finalize_traced(self) -> None:
        self.end("done")
        self._finalize()


def main(words: list[str]) -> None:
    """Run `words`: a folder, then a script or `-m` and a module, then its arguments."""
    folder, (program, *arguments) = Path(words[0]), words[1:]
    traced = Traced(folder)
    how = "done"
    try:
        _run(program, arguments)
    except SystemExit as error:
        how = "done" if error.code in (None, 0) else f"exit status {error.code}"
        raise
    except BaseException as error:
        how = f"{type(error).__name__}: {error}"
        _abort(traced, how)
        raise
    finally:
        traced.end(how)


def _run(program: str, arguments: list[str]) -> None:
    if program == "-m":
        sys.argv = arguments
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *arguments]
        sys.path[0] = str(Path(program).resolve().parent)
        runpy.run_path(program, run_name="__main__")


def _abort(traced: Traced, how: str) -> None:
    """End all ranks where one has failed, as `python -m mpi4py` does: they would wait for it for ever."""
    HERE.told(ended=how)
    if traced.own.size > 1 and not traced.mpi.Is_finalized():
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        traced.own.Abort(1)


if __name__ == "__main__":
    main(sys.argv[1:])
