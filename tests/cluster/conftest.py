"""A Slurm for the tests: `slurm` is the environment in which its commands find it. One for each test process."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "sinfo")
PROGRAM = Path(__file__).with_name("virtual_slurm.py")
PATIENCE = 180  # s, of a busy machine
TRIES = 3  # another program may take a port between the look and the start


@pytest.fixture(scope="session")
def slurm(require: Callable[[object, str], None]) -> Iterator[dict[str, str]]:
    """A real Slurm with four virtual nodes of four cores; what to add to the environment to reach it.

    It is in os.environ while it runs. Nothing of it is left when the tests end, or are killed.
    """
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [name for name in COMMANDS if not shutil.which(name, path=path)]
    require(not missing and sys.platform == "linux", f"no {', '.join(missing)} here")
    before = dict(os.environ)
    for number in range(TRIES):
        folder = Path(tempfile.mkdtemp(prefix="dlhpc-slurm-"))  # short: it holds sockets
        folder.chmod(0o700)
        keeper = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder / "slurm")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        line = keeper.stdout.readline()
        if line or number == TRIES - 1:
            break
        keeper.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)
    assert line, "Slurm did not start"
    os.environ.update(json.loads(line))
    try:
        yield json.loads(line)
    finally:
        keeper.stdin.close()
        keeper.wait(PATIENCE)
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)
