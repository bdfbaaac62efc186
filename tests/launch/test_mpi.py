"""Ranks here: a limited number, and none survives its parent."""

import os
import signal
import subprocess
import sys
import time

import pytest
from patience import PATIENCE, eventually, living

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import mpi
from lib_dlhpc.launch.local import start
from lib_dlhpc.spec.host import cores

SLEEPER = "import os, sys, time; open(sys.argv[1] + str(os.getpid()), 'w'); time.sleep(600)"


@pytest.mark.parametrize("ranks", [0, -1, mpi.MOST * cores() + 1, 100_000])
def test_ranks_that_cannot_be_are_refused_before_any_starts(ranks, tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **options: pytest.fail("started"))
    legal = f"ranks = {ranks}: legal on this machine: 1 to {mpi.MOST * cores()}"
    with pytest.raises(SpecError, match=legal):
        mpi.run_to_end(ranks, "-c", "", patience=PATIENCE)
    with pytest.raises(SpecError, match=legal):
        start(None, ranks, tmp_path / "run")
    assert not list(tmp_path.iterdir())


def ranks_of(place, count):
    """Return the processes that have reported."""
    end = time.monotonic() + PATIENCE
    while len(found := [int(path.name) for path in place.iterdir()]) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} ranks"
        time.sleep(0.05)
    return found


def gone(pids):
    return eventually(lambda: not living(pids), what="the end of all ranks")


def test_of_more_ranks_than_cores_those_that_wait_sleep_unless_the_user_says_otherwise(monkeypatch):
    for name in mpi.SLEEPING:
        monkeypatch.delenv(name, raising=False)
    for ranks in (1, cores()):
        assert not mpi.SLEEPING.keys() & mpi.environment(ranks).keys()
    assert mpi.SLEEPING.items() <= mpi.environment(cores() + 1).items()
    (name, _), *_ = mpi.SLEEPING.items()
    monkeypatch.setenv(name, "0")
    assert mpi.environment(cores() + 1)[name] == "0"


def test_ranks_are_ended_at_the_timeout(tmp_path):
    pids: list[int] = []
    for patience in (2, 40, PATIENCE):  # a busy machine is slow to start them
        with pytest.raises(subprocess.TimeoutExpired):
            mpi.run_to_end(2, "-c", SLEEPER, f"{tmp_path}{os.sep}", patience=patience)
        pids = [int(path.name) for path in tmp_path.iterdir()]
        if len(pids) >= 2:
            break
    assert len(pids) >= 2 and gone(pids)


RAISES = """
import time
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    raise KeyError("a mistake of rank 1")
MPI.COMM_WORLD.barrier() if {waits!r} == "in a barrier" else time.sleep(600)
"""


@pytest.mark.parametrize("waits", ["in a barrier", "for something else"])
@pytest.mark.parametrize("how", ["command", "file"])
def test_a_rank_that_raises_ends_the_others_with_its_traceback(tmp_path, waits, how):
    (tmp_path / "raises.py").write_text(text := RAISES.format(waits=waits))
    words = ("-c", text) if how == "command" else (str(tmp_path / "raises.py"),)
    run = mpi.run_to_end(2, *words, patience=PATIENCE)
    assert run.returncode != 0 and "KeyError: 'a mistake of rank 1'" in run.stderr


WAYS = [signal.SIGTERM]
if sys.platform == "linux":
    WAYS.append(signal.SIGKILL)


@pytest.mark.parametrize("way", WAYS)
def test_ranks_end_with_a_command_that_is_signaled_or_killed(way, tmp_path):
    program = (
        "import sys; from lib_dlhpc.launch import mpi\n"
        f"mpi.run_to_end(2, '-c', {SLEEPER!r}, sys.argv[1], patience=600)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, f"{tmp_path}{os.sep}"])
    pids = ranks_of(tmp_path, 2)
    process.send_signal(way)
    process.wait(PATIENCE)
    assert gone(pids)
