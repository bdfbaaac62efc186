"""Real ranks: worker programs started with the environment's own mpiexec, oversubscribed if necessary."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE

from lib_dlhpc.launch.mpi import ONE_THREAD, SLEEPING


@pytest.fixture(scope="session")
def mpiexec(require) -> str:
    """The mpiexec beside this Python, or else the one on the PATH."""
    beside = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    found = beside or shutil.which("mpiexec")
    require(found, "no mpiexec")
    return str(found)


@pytest.fixture(scope="session")
def run_ranks(mpiexec) -> Callable[..., str]:
    """A function: `run_ranks(4, worker, *arguments)` runs the file `worker` on 4 ranks and returns its output."""

    def run_ranks(ranks: int, worker: Path, *arguments: str) -> str:
        run = subprocess.run(
            [mpiexec, "-n", str(ranks), sys.executable, str(worker), *arguments],
            env=SLEEPING | os.environ | ONE_THREAD,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert f"{ranks} ranks" in run.stdout  # some launchers start lone programs instead
        return run.stdout

    return run_ranks
