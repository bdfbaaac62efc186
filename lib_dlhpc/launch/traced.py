"""Run an unmodified mpi4py program with its calls recorded: python -m lib_dlhpc.launch.traced FOLDER SCRIPT ...

Each rank appends its rows to files in FOLDER, so they survive any end of the rank; nothing is sent to other ranks. `-m
MODULE` may replace SCRIPT. Started by trace_run on each rank.
"""

import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lib_dlhpc.launch.mpi import RANK, RANKS, launcher_value
from lib_dlhpc.timeline.clocks import offset
from lib_dlhpc.timeline.communicator import trace_comm
from lib_dlhpc.timeline.recorder import HERE

MPI_MODULE = "mpi4py.MPI"
INTERRUPTED = "KeyboardInterrupt"  # how a rank ends after Ctrl-C
INTERRUPTED_STATUS = 130  # as of a shell: 128 + SIGINT
EXITED = "exit status"
RAISED_STATUS = 1  # Python's own


def part_of(folder: Path, rank: int) -> Path:
    """Return a rank's file of rows."""
    return folder / f"rank-{rank}.rows"


class Traced:
    """The traced MPI world of a program, from MPI initialization to its end.

    The program controls the initialization: it may set mpi4py.rc, call MPI.Init itself, or fork before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.ended = folder, False
        self.mpi: Any = None
        self.own: Any = None  # a private communicator: the tracer's messages are not the program's
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Import hook: trace MPI once it is imported."""
        if name != MPI_MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                self._loaded(module)

            loader.exec_module = exec_module
        return spec

    def _loaded(self, mpi: Any) -> None:
        self.mpi = mpi
        vars(mpi).update({name: self._then(getattr(mpi, name)) for name in ("Init", "Init_thread")})
        vars(mpi).update(Finalize=self._finalizing(mpi.Finalize))
        if mpi.Is_initialized():
            self._begin()

    def _begin(self) -> None:
        self.own = self.mpi.COMM_WORLD.Dup()
        HERE.on = True  # also in a process that was forked
        HERE.keep_in(part_of(self.folder, self.own.rank))
        HERE.note(ranks=self.own.size)
        self.mpi.COMM_WORLD = trace_comm(self.mpi.COMM_WORLD)

    def _then(self, init: Callable[..., Any]) -> Callable[..., Any]:
        def initialize(*arguments: Any) -> Any:
            level = init(*arguments)
            self._begin()
            return level

        return initialize

    def _finalizing(self, finalize: Callable[[], None]) -> Callable[[], None]:
        def finalize_traced() -> None:
            self.end("done")
            finalize()

        return finalize_traced

    def end(self, how: str) -> None:
        """Record how the program ended on this rank, and its clock offset."""
        if self.ended:
            return
        self.ended, HERE.on = True, False
        if self.own is None:  # no MPI: regions at most
            HERE.keep_in(part_of(self.folder, launcher_value(RANK, 0)))
            HERE.note(ranks=launcher_value(RANKS, 1))
        HERE.note(ended=how)
        if self.own is not None and not self.mpi.Is_finalized():
            self._meet()
            HERE.clock(offset(self.own))

    def _meet(self) -> None:
        """Wait for the other ranks to end, as MPI_Finalize does, but asleep: they may need the core."""
        request = self.own.Ibarrier()
        while not request.Test():
            time.sleep(1e-3)


def main(words: list[str]) -> None:
    """Run `words`: a folder, then a script or `-m` and a module, then its arguments."""
    folder, (program, *arguments) = Path(words[0]), words[1:]
    traced = Traced(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # see trace_run.IGNORE_INTERRUPT
    how = "done"
    try:
        _run(program, arguments)
    except SystemExit as error:
        how = "done" if error.code in (None, 0) else f"{EXITED} {error.code}"
        raise
    except KeyboardInterrupt:  # by the user: no traceback from each rank
        how = INTERRUPTED
        _abort(traced, how, INTERRUPTED_STATUS)
        raise SystemExit(INTERRUPTED_STATUS) from None
    except BaseException as error:
        how = ": ".join(filter(None, (type(error).__name__, str(error))))
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


def _abort(traced: Traced, how: str, status: int = RAISED_STATUS) -> None:
    """Abort all ranks if one has failed, as `python -m mpi4py` does: they would wait for it forever."""
    if traced.own is not None and traced.own.size > 1 and not traced.mpi.Is_finalized():
        HERE.note(ended=how)
        if how != INTERRUPTED:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        traced.own.Abort(status)


if __name__ == "__main__":
    main(sys.argv[1:])
