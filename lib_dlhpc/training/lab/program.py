"""A lab's checks as a program on MPI ranks."""

import os
import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import sleep
from typing import Any

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.training.lab.mistakes import LabError

UNUSABLE = 2  # exit status where nothing could be checked


class Unusable(LabError):
    """What is wrong before anything is checked, in words: every rank sees it, so none waits for another."""


def end_together(main: Callable[[], None]) -> None:
    """Run `main`; a rank that raises says why, in a sentence, and ends all others, which would wait for ever.

    Where every rank has to stop (Unusable), the first one says it and all leave in peace.
    """
    try:
        main()
    except Exception as error:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        alike = isinstance(error, Unusable)
        if not alike or comm.rank == 0:
            print(_told(error, comm.rank, comm.size), file=sys.stderr, flush=True)
        if alike or comm.size == 1:
            sys.exit(UNUSABLE)
        MPI.COMM_WORLD.Abort(1)


def arguments(*names: str, optional: int = 0) -> list[str]:
    """Return the words of the command line; the last `optional` ones may be missing.

    Raises Unusable, which says what is wanted, where they are fewer or more.
    """
    given = sys.argv[1:]
    if not len(names) - optional <= len(given) <= len(names) or "-h" in given or "--help" in given:
        least = len(names) - optional
        words = [*names[:least], *(f"[{name}]" for name in names[least:])]
        raise Unusable(f"usage: python {Path(sys.argv[0]).name} {' '.join(words)}")
    return given


def handed_in(path: str, names: Sequence[str]) -> dict[str, Any]:
    """Return what a learner's file defines. Raises Unusable where there is none, or one that lacks a name."""
    try:
        given = runpy.run_path(path)
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}.") from None
    except Exception as error:
        raise Unusable(f"{path} cannot be run: {_mistake(error, path)}") from None
    missing = [name for name in names if name not in given]
    if missing:
        raise Unusable(f"{path} does not define {', '.join(missing)}.")
    return given


def _told(error: Exception, rank: int, ranks: int) -> str:
    """Return an error in words: one sentence, but all there is to know if it is none of the learner's."""
    known = isinstance(error, Unusable) or str(error).lower().startswith(f"rank {rank}:")
    where = f"Rank {rank}: " * (ranks > 1 and not known)
    if isinstance(error, LabError | SpecError):
        return f"{where}{error}"
    if len(sys.argv) > 1:
        sentence = _mistake(error, sys.argv[1])
        if "line" in sentence:
            return f"{where}{sentence}"
    return where + "".join(traceback.format_exception(error))


def _mistake(error: Exception, path: str) -> str:
    """Return what kind of mistake it is, and the line of the learner's file in which it was made."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if Path(frame.filename).resolve() == Path(path).resolve()]
    said = f"{type(error).__name__}: {error}"
    if not lines:
        return said
    return f"{Path(path).name}, line {lines[-1].lineno}, in {lines[-1].name}: {said}"


class Followed(tuple[Any, ...]):
    """A stream of instructions that knows which one its rank has come to."""

    at: Any = None

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.at = each
            yield each
        self.at = None


def tell_where(stream: Iterable[Any], rank: int, patience: float = 20.0) -> Followed:
    """Return the stream; if its rank is in the same instruction after `patience` s, it says so and ends all.

    Real ranks that wait for each other would do so for ever, and nobody would know in which call.
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
                sleep(1.0)  # others say where they are
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    return followed
