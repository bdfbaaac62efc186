"""Ranks on this machine: which mpiexec starts them, one thread each, and their end."""

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.measured import cores

MOST = 32  # ranks a core: each is a process of its own that waits by looking again and again
LATE = 10.0  # s that mpiexec has to end the others when a rank has failed
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

# What launchers tell a process, for programs that do not use MPI: its rank, and how many there are.
RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
RANKS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")


class Place(Protocol):
    """Where ranks may run: this module itself is one, a network laboratory another."""

    def command(self, ranks: int, *arguments: str) -> list[str]: ...
    def environment(self) -> dict[str, str]: ...


def mpiexec() -> str:
    """Return the environment's own mpiexec, else one on the PATH. Raises SpecError."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if found is None:
        raise SpecError("There is no mpiexec here; `pip install mpi4py mpich` brings one.")
    return found


def check_here(ranks: int) -> None:
    """Raise SpecError unless this machine can start so many ranks and still answer."""
    most = MOST * cores()
    if not 1 <= ranks <= most:
        raise SpecError(f"ranks = {ranks}: legal on this machine: 1 to {most}, {MOST} a core.")


def command(ranks: int, *arguments: str) -> list[str]:
    """Return `mpiexec -n RANKS python ARGUMENTS`. Raises SpecError where MPI is missing."""
    return [mpiexec(), "-n", str(ranks), sys.executable, *arguments]


def ends_all(arguments: Sequence[str]) -> list[str]:
    """Return what lets an error of one rank end the others, which would wait for it; not beside options of Python.

    It goes between Python and its arguments. mpi4py ends all ranks at an error that is not caught.
    """
    first = list(arguments[:2])
    beside = not first or (first[0].startswith("-") and first[0] not in ("-m", "-c", "-"))
    return [] if beside or first == ["-m", "mpi4py"] else ["-m", "mpi4py"]


def environment() -> dict[str, str]:
    """Return this process's environment, with one thread a rank: ranks are what shares the cores."""
    return {**os.environ, **ONE_THREAD}


def launcher_value(names: tuple[str, ...], otherwise: int) -> int:
    """Return what the launcher has told this process under one of `names`."""
    return next((int(os.environ[name]) for name in names if name in os.environ), otherwise)


class Overdue:
    """Whether a rank has failed in a run folder, and in LATE s mpiexec, whose task it is, has not ended the others.

    MPICH 5.0.2 lets them be where it asks after a rank that has ended with a status before it hears that the
    rank's line is closed: now and then on a busy machine. A rank that is ended by a signal it does not miss.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._failed = folder, math.inf  # when that was seen, in s of time.monotonic

    def __call__(self) -> bool:
        """Look once."""
        if any(self.folder.glob("error-*.json")):
            self._failed = min(self._failed, time.monotonic())
        return time.monotonic() > self._failed + LATE


def run_to_end(ranks: int, *arguments: str, patience: float) -> subprocess.CompletedProcess[str]:
    """Run a Python program on ranks and return what came of it, its output as text.

    Raises SpecError for ranks that cannot be and where MPI is missing or does not start,
    subprocess.TimeoutExpired after `patience` s. However it ends, no rank goes on, not even where this process is
    killed (lifetime/owned.py).
    """
    check_here(ranks)
    words = command(ranks, *arguments)
    try:
        return owned.run(
            words, patience, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment(), start_new_session=os.name == "posix",
        )  # fmt: skip
    except OSError as error:
        raise SpecError(f"{words[0]} could not be started: {error.strerror}.") from None
