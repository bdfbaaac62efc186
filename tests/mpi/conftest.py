"""Real ranks: worker programs on resident ranks or ranks of their own, oversubscribed if necessary."""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE
from resident_ranks import Resident

from lib_dlhpc.launch.mpi import run_to_end

LONG = 3 * PATIENCE  # s; the memory of all modes takes more than a minute on idle cores


@pytest.fixture(scope="session")
def mpiexec(require) -> str:
    """The mpiexec beside this Python, or else the one on the PATH."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec")
    require(found, "no mpiexec")
    return str(found)


@pytest.fixture(scope="package")
def run_ranks(mpiexec) -> Iterator[Callable[..., str]]:
    """A function: `run_ranks(4, worker, *arguments)` runs the file `worker` on 4 resident ranks; returns its output."""
    ranks = Resident(mpiexec, PATIENCE)
    yield ranks.run
    ranks.close()


@pytest.fixture(scope="session")
def start_ranks(mpiexec) -> Callable[..., str]:
    """The same on ranks of their own, for what looks at a whole process: its memory, its trace."""

    def start_ranks(ranks: int, worker: Path, *arguments: str) -> str:
        run = run_to_end(ranks, str(worker), *arguments, patience=LONG)
        assert run.returncode == 0, run.stdout + run.stderr
        assert f"{ranks} ranks" in run.stdout  # some launchers start lone programs instead
        return run.stdout

    return start_ranks
