"""On a full disk each command names the file that it cannot write, and leaves nothing half written."""

import json
import os
import random
import subprocess
import sys

import pytest
from patience import PATIENCE

from lib_dlhpc.cli import main
from lib_dlhpc.launch.folder import RESULT, STATUS, run_status
from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.store import save

LIMIT = 3_000  # B of a file: what is checked first, and Python's own, is smaller
LIMITED = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])));"
    "from lib_dlhpc.cli import main; sys.exit(main(sys.argv[2:]))"
)
COMMANDS = {  # what is to be named, and the words
    "out.otf2": ("trace", "convert", "trace.npz", "out.otf2"),
    "out.json": ("trace", "convert", "trace.npz", "out.json"),
    "out.npz": ("trace", "convert", "trace.npz", "out.npz"),
    "steps.json": ("simulate", "DIGITS", "--steps", "300", "--trace", "steps.json"),
    "partition-00000": ("store", "pack", "CATALOG", "store", "--partitions", "1"),
    ".": ("calibrate", "io", ".", "--seconds", "2", "--size", "51 MB"),
}

# MPI's own shared memory is too large for a limit; these let no file be written once a snapshot was to be.
RUNS = {
    "run": ("run", "DIGITS", "-n", "2", "--out", "folder"),
    "submit": ("submit", "DIGITS", "-n", "2", "--to", "local", "--out", "folder", "--wait"),
}
FULL = """
import errno, os, pathlib
marker, flush, write = os.environ["DLHPC_TEST_FULL"], os.fsync, pathlib.Path.write_text
def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
def fsync(file):
    open(marker, "w").close()
    full()
def write_text(self, *words, **more):
    if os.path.exists(marker):
        self.touch()
        full()
    return write(self, *words, **more)
os.fsync, pathlib.Path.write_text = fsync, write_text
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")


@pytest.fixture
def limited(repository, tmp_path):
    places = {
        "DIGITS": repository / "labs/experiments/digits.toml",
        "CATALOG": repository / "lib_dlhpc/catalog",
    }
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "XDG_STATE_HOME": str(tmp_path / "state")}
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # Python cuts its bytecode at the limit, and then reads it

    def run(words, limit=LIMIT, **more):
        words = [str(places.get(word, word)) for word in words]
        return subprocess.run(
            [sys.executable, "-c", LIMITED, str(limit), *words],
            cwd=tmp_path,
            env=env | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_names_the_file_that_it_cannot_write(name, limited, tmp_path):
    if name.startswith("out."):
        dice = random.Random(0)
        rows = [
            (rank, "compute", "forward", f"layer {n % 97}", dice.random(), 2.0)
            for n in range(3000)
            for rank in (0, 1)
        ]
        save(from_rows(rows, 2, "measured"), tmp_path / "trace.npz")
    before = {path for path in tmp_path.rglob("*") if "state" not in path.parts}
    came = limited(COMMANDS[name])
    last = came.stderr.strip().splitlines()[-1]
    assert came.returncode == 2 and "Traceback" not in came.stderr, came
    assert last.startswith("dlhpc: ") and name in last and "too large" in last.lower(), came
    assert {path for path in tmp_path.rglob("*") if "state" not in path.parts} == before


@pytest.mark.parametrize("name", RUNS)
def test_a_run_fails_for_a_reason_and_resumes_where_there_is_space(name, limited, tmp_path):
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(FULL)
    marker, folder = str(tmp_path / "full"), tmp_path / "folder"
    came = limited(RUNS[name], 10**9, PYTHONPATH=str(tmp_path / "patch"), DLHPC_TEST_FULL=marker)
    assert came.returncode == 1 and "Traceback" not in came.stderr, came
    assert "snapshot.npz" in came.stderr and "No space left" in came.stderr, came
    status = json.loads((folder / STATUS).read_text())
    assert status["state"] == "failed"
    assert "snapshot.npz" in status["reason"]
    assert not list(folder.glob(".*"))
    (folder / ".snapshot.npz.1.tmp").touch()  # of one that was killed together with its guard
    again = limited(("run", "--resume", "folder", "-n", "2", "--set", "run.epochs=1"), 10**9)
    assert again.returncode == 0, again
    assert json.loads((folder / STATUS).read_text())["state"] == "done"
    assert not list(folder.glob(".*"))


def test_a_dead_run_is_not_reported_as_running(tmp_path, capsys):
    """Where the guard was killed as well, or the machine lost its power."""
    (tmp_path / "log.txt").touch()
    (tmp_path / STATUS).write_text('{"state": "running", "pid": 1}')
    assert run_status(tmp_path)["state"] == "failed" and "gone" in run_status(tmp_path)["reason"]
    assert main(["jobs", "why", str(tmp_path)]) == 1 and "is failed" in capsys.readouterr().out
    (tmp_path / RESULT).write_text("{}")
    assert run_status(tmp_path)["state"] == "done"
