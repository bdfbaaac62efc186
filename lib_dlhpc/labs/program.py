"""A lab's checks as a program on MPI ranks."""

import os
import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import sleep
from typing import Any, NoReturn

from lib_dlhpc.errors import SpecError
from lib_dlhpc.labs.attempts import report
from lib_dlhpc.labs.findings import Finding, passed
from lib_dlhpc.labs.mistakes import LabError

UNUSABLE = 2  # exit status where nothing could be checked
# s in which mpiexec passes on what was printed; an abort loses what it has not yet read
FORWARDED = 0.5


class Unusable(LabError):
    """An error before any check starts; all ranks detect it, so none waits for another."""


def end_together(main: Callable[[], None]) -> None:
    """Run `main`; a rank that raises prints the reason and aborts the others, which would wait forever.

    If all ranks stop (Unusable), rank 0 prints it and all exit.
    """
    try:
        main()
    except Exception as error:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        alike = isinstance(error, Unusable)
        if not alike or comm.rank == 0:
            print(_message(error, comm.rank, comm.size), file=sys.stderr, flush=True)
        if alike or comm.size == 1:
            sys.exit(UNUSABLE)
        sleep(FORWARDED)
        MPI.COMM_WORLD.Abort(1)


def arguments(*names: str, optional: int = 0) -> list[str]:
    """Return the command-line arguments; the last `optional` ones may be missing.

    Raises Unusable with a usage message if the number is wrong.
    """
    given = sys.argv[1:]
    if not len(names) - optional <= len(given) <= len(names) or "-h" in given or "--help" in given:
        least = len(names) - optional
        words = [*names[:least], *(f"[{name}]" for name in names[least:])]
        raise Unusable(f"usage: python {Path(sys.argv[0]).name} {' '.join(words)}")
    return given


def existing(path: str) -> str:
    """Return the path of a hand-in that another process reads. Raises Unusable if there is no such file."""
    if not Path(path).is_file():
        raise Unusable(f"{path}: there is no such file.")
    return path


def handed_in(path: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the definitions of a learner's file. Raises Unusable if it is missing or lacks a name."""
    try:
        given = runpy.run_path(path)
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}.") from None
    except Exception as error:
        raise Unusable(f"{path} cannot be run: {mistake(error, path)}") from None
    missing = [name for name in names if name not in given]
    if missing:
        raise Unusable(f"{path} does not define {', '.join(missing)}.")
    return given


def check_file(
    names: Sequence[str], findings: Callable[[dict[str, Any], str], Sequence[Finding]]
) -> NoReturn:
    """Check the file of the command line: findings(its definitions, name) says what holds.

    Raises Unusable for other arguments, and for a file that lacks one of the names.
    """
    file, name = arguments("step.py", '"your name"')
    end_with(findings(handed_in(file, names), name))


def end_with(findings: Sequence[Finding], title: str = "") -> NoReturn:
    """Record and print the findings; exit with 0 if all laws hold, else with 1."""
    print(report(findings, title))
    sys.exit(not passed(findings))


def emulated_first(comm: Any, run: Callable[[], object]) -> None:
    """Let rank 0 run a hand-in on emulated ranks before the real ones do: there a deadlock is explained, here it hangs.

    Raises Unusable, on all ranks, if `run` raises LabError.
    """
    said = ""
    if comm.rank == 0:
        try:
            run()
        except LabError as error:
            said = str(error)
    if said := comm.bcast(said):
        raise Unusable(f"Not started on real ranks, because on emulated ranks: {said}")


def _message(error: Exception, rank: int, ranks: int) -> str:
    """Return an error message: one sentence, or the traceback if the error is not in the learner's file."""
    known = isinstance(error, Unusable) or str(error).lower().startswith(f"rank {rank}:")
    where = f"Rank {rank}: " * (ranks > 1 and not known)
    if isinstance(error, LabError | SpecError):
        return f"{where}{error}"
    if len(sys.argv) > 1:
        sentence = mistake(error, sys.argv[1])
        if "line" in sentence:
            return f"{where}{sentence}"
    return where + "".join(traceback.format_exception(error))


def mistake(error: Exception, path: str) -> str:
    """Return the kind of error and its line in the learner's file."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if Path(frame.filename).resolve() == Path(path).resolve()]
    text = f"{type(error).__name__}: {error}"
    if not lines:
        return text
    return f"{Path(path).name}, line {lines[-1].lineno}, in {lines[-1].name}: {text}"


class Followed(tuple[Any, ...]):
    """An instruction stream that tracks the current instruction of its rank."""

    at: Any = None

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.at = each
            yield each
        self.at = None


def report_stuck(stream: Iterable[Any], rank: int, patience: float = 20.0) -> Followed:
    """Return the stream, watched: a rank that stays in one instruction for `patience` s reports it and exits.

    Otherwise deadlocked real ranks would hang without a hint at the call.
    """
    followed = Followed(stream)

    def watch() -> None:
        while True:
            before = followed.at
            sleep(patience)
            if before is not None and followed.at is before:
                print(
                    f"Rank {rank} has been in {before} for {patience:g} s.",
                    file=sys.stderr,
                    flush=True,
                )
                sleep(1.0)  # time for other ranks to report
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    return followed
