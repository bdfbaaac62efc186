"""MPI ranks on this machine: their mpiexec, one thread each, and their cleanup."""

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from lib_dlhpc.errors import SpecError
from lib_dlhpc.extras import installer
from lib_dlhpc.lifetime import owned
from lib_dlhpc.spec.host import cores

MOST = 32  # ranks a core
LATE = 10.0  # s that mpiexec has to end the other ranks after a failure
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# MPICH: a rank that waits sleeps after ten polls. Polling, it would hold a core that another rank needs to continue.
SLEEPING = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "10"}

# Environment variables of launchers, for programs without MPI: rank and number of ranks.
RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
RANKS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")


class Place(Protocol):
    """Where ranks may run: this module is one place, a network laboratory another."""

    def command(self, ranks: int, *arguments: str) -> list[str]: ...
    def environment(self, ranks: int) -> dict[str, str]: ...


def mpiexec() -> str:
    """Return the environment's own mpiexec, else one on the PATH. Raises SpecError."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if found is None:
        raise SpecError(f"There is no mpiexec here; `{installer('run')}` installs one.")
    return found


def check_here(ranks: int) -> None:
    """Raise SpecError unless this machine can start `ranks` ranks and stay responsive."""
    most = MOST * cores()
    if not 1 <= ranks <= most:
        raise SpecError(f"ranks = {ranks}: legal on this machine: 1 to {most}, {MOST} per core.")


def command(ranks: int, *arguments: str) -> list[str]:
    """Return `mpiexec -n RANKS python ARGUMENTS`. Raises SpecError if MPI is missing."""
    return [mpiexec(), "-n", str(ranks), sys.executable, *arguments]


def ends_all(arguments: Sequence[str]) -> list[str]:
    """Return `-m mpi4py`, so that an error of one rank ends the others, which would wait for it.

    It goes between Python and its arguments; empty if Python options come first. mpi4py aborts all ranks on an
    uncaught exception.
    """
    first = list(arguments[:2])
    beside = not first or (first[0].startswith("-") and first[0] not in ("-m", "-c", "-"))
    return [] if beside or first == ["-m", "mpi4py"] else ["-m", "mpi4py"]


def environment(ranks: int = 1) -> dict[str, str]:
    """Return this process's environment, with one thread a rank: ranks, not threads, share the cores.

    ranks: on this machine; of more than its cores those that wait sleep, unless the environment says otherwise.
    """
    sleeping = SLEEPING if ranks > cores() else {}
    return {**sleeping, **os.environ, **ONE_THREAD}


def launcher_value(names: tuple[str, ...], otherwise: int) -> int:
    """Return the integer environment variable that the launcher set under one of `names`."""
    return next((int(os.environ[name]) for name in names if name in os.environ), otherwise)


class Overdue:
    """Whether mpiexec has not ended the other ranks LATE s after a rank's failure in a run folder.

    MPICH 5.0.2 leaves them running if it reaps a rank's exit status before it sees the rank's closed socket, which
    happens occasionally on a busy machine. It never misses a rank killed by a signal.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._failed = folder, math.inf  # when that was seen, in s of time.monotonic

    def __call__(self) -> bool:
        """Poll once."""
        if any(self.folder.glob("error-*.json")):
            self._failed = min(self._failed, time.monotonic())
        return time.monotonic() > self._failed + LATE


def run_to_end(ranks: int, *arguments: str, patience: float) -> subprocess.CompletedProcess[str]:
    """Run a Python program on ranks and return its completed process, with output as text.

    An error of one rank ends all, unless options of Python come before the program (`ends_all`). Raises SpecError for
    illegal ranks and if MPI is missing or does not start, subprocess.TimeoutExpired after `patience` s. No rank
    survives, even if this process is killed (lifetime/owned.py).
    """
    check_here(ranks)
    words = command(ranks, *ends_all(arguments), *arguments)
    try:
        return owned.run(
            words,
            patience,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(ranks),
            start_new_session=os.name == "posix",
        )
    except OSError as error:
        raise SpecError(f"{words[0]} could not be started: {error.strerror}.") from None
