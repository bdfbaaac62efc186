"""A lab's checks as a program on MPI ranks."""

import os
import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import sleep
from typing import Any

from lib_dlhpc.train.lab.mistakes import LabError


def end_together(main: Callable[[], None]) -> None:
    """Run `main`; a rank that raises says why and ends all others, which would wait for it for ever."""
    try:
        main()
    except Exception:
        from mpi4py import MPI

        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)


def handed_in(path: str, names: Sequence[str]) -> dict[str, Any]:
    """Return what a learner's file defines. Raises LabError where it lacks one of `names`."""
    given = runpy.run_path(path)
    missing = [name for name in names if name not in given]
    if missing:
        raise LabError(f"{path} does not define {', '.join(missing)}.")
    return given


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
