"""Ranks on this machine: which mpiexec starts them, and one thread each."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from lib_dlhpc.spec.errors import SpecError

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


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


def command(ranks: int, *arguments: str) -> list[str]:
    """Return `mpiexec -n RANKS python ARGUMENTS`. Raises SpecError where MPI is missing."""
    return [mpiexec(), "-n", str(ranks), sys.executable, *arguments]


def environment() -> dict[str, str]:
    """Return this process's environment, with one thread a rank: ranks are what shares the cores."""
    return {**os.environ, **ONE_THREAD}


def run_to_end(ranks: int, *arguments: str, patience: float) -> subprocess.CompletedProcess[str]:
    """Run a Python program on ranks and return what came of it, its output as text.

    Raises SpecError where MPI is missing or does not start, subprocess.TimeoutExpired after `patience` s.
    """
    words = command(ranks, *arguments)
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=patience, env=environment(),
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        raise SpecError(f"{words[0]} could not be started: {error.strerror}.") from None
