"""Engines: `%%px` runs a cell on MPI ranks; none is left when they are ended, or the kernel is killed."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import nbformat
import psutil
import pytest
from patience import PATIENCE, eventually

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import JobError, attach, submit_task
from lib_dlhpc.launch.engines import Engines, engines
from lib_dlhpc.launch.engines_job import WORD, accept, read
from lib_dlhpc.launch.folder import errors
from lib_dlhpc.launch.jobs import ENDS
from lib_dlhpc.launch.task import program

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="jobs of this machine need POSIX"),
    pytest.mark.usefixtures("own_place", "ranks_can_start"),
]

CELLS = (
    "from lib_dlhpc.launch.engines import engines; crew = engines(2, folder='run')",
    "%%px\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
    "output = [comm.rank, comm.size, comm.allreduce(comm.rank)]",
    "%%px --targets 1\noutput.append('only this one')",
    "import json, pathlib\n"
    "pathlib.Path('told.json').write_text(json.dumps(crew.client[:].pull('output', block=True)))",
    "import os; os.kill(os.getpid(), 9)",
)


def of(folder):
    """The processes of a run folder that have not ended, and all below them."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or []):
            with suppress(psutil.NoSuchProcess):
                for each in (process, *process.children(recursive=True)):
                    found[each.pid] = each
    return [each for each in found.values() if living(each)]


def living(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def none_is_left(family):
    eventually(lambda: not list(filter(living, family)), lambda: f"the end of {family}")


def test_a_cell_runs_on_every_rank_and_a_killed_kernel_leaves_none(tmp_path):
    from nbclient import NotebookClient
    from nbclient.exceptions import DeadKernelError

    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    where = {"metadata": {"path": str(tmp_path)}}
    family = []

    def look(cell_index, **_):
        if cell_index == 3:
            family.extend(of(tmp_path / "run"))

    client = NotebookClient(
        notebook,
        timeout=PATIENCE,
        startup_timeout=PATIENCE,
        kernel_name="python3",
        resources=where,
        on_cell_executed=look,
    )
    with pytest.raises(DeadKernelError):
        client.execute()
    output = json.loads((tmp_path / "told.json").read_text())
    assert output == [[0, 2, 1], [1, 2, 1, "only this one"]]
    assert len(family) >= 5, family  # the job, the controller, mpiexec, two engines
    eventually(lambda: attach(tmp_path / "run").state in ENDS)
    none_is_left(family)


FOREVER = """
import os, pathlib, time
pathlib.Path(f"began-{os.getpid()}").touch()
while True:
    time.sleep(0.1)
"""


def test_engines_can_be_interrupted_end_with_the_block_and_one_that_dies_is_reported(tmp_path):
    from ipyparallel.error import CompositeError

    with engines(2) as client:
        (folder,) = tmp_path.glob("dlhpc-*")
        family, job = of(folder), attach(folder)
        assert client.ids == [0, 1] and len(family) >= 5
        assert client[:].apply_sync(os.getcwd) == [str(tmp_path)] * 2
        endless = client[:].execute(FOREVER, block=False)
        eventually(lambda: len(list(tmp_path.glob("began-*"))) == 2)
        client.send_signal(signal.SIGINT, block=True)
        with pytest.raises(CompositeError, match="KeyboardInterrupt"):
            endless.get(PATIENCE)
        client[1].apply_async(os._exit, 3)
        eventually(lambda: job.state == "failed", job.why)
        assert job.why() == "rank 1 of the engines: Ended: with status 3"
    none_is_left(family)
    assert folder.exists()  # its log tells what happened


@pytest.mark.parametrize("status", [0, 3])
def test_an_engine_that_ends_is_reported_and_its_parent_ends_by_a_signal(tmp_path, status):
    """Of a rank that ends with a status mpiexec may leave the others be."""
    (tmp_path / "ipyparallel").mkdir()
    (tmp_path / "ipyparallel/__init__.py").touch()
    (tmp_path / "ipyparallel/engine.py").write_text(f"import sys; sys.exit({status})\n")
    words = [sys.executable, "-m", "lib_dlhpc.launch.engine", str(tmp_path)]
    done = subprocess.run(words, env={**os.environ, "PMI_RANK": "2"}, timeout=PATIENCE)
    assert done.returncode == -signal.SIGKILL
    (error,) = errors(tmp_path)
    assert error["where"] == "rank 2 of the engines" and error["text"] == f"with status {status}"


def test_engines_that_do_not_start_are_reported_and_leave_nothing(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'lib_dlhpc.launch.engine' in sys.orig_argv: sys.exit(7)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(JobError, match="the engines: Ended"):
        engines(1, folder=tmp_path / "run")
    assert attach(tmp_path / "run").state == "failed"
    eventually(lambda: not of(tmp_path / "run"))
    for ranks in ("x", 2.0, None, True):
        with pytest.raises(SpecError, match="expected a whole number, at least 1"):
            engines(ranks)
    for wrong in ({"ranks": 0}, {"ranks": 1, "to": "none"}, {"ranks": 1, "site": "none"}):
        with pytest.raises(SpecError):
            engines(**wrong, folder=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_what_has_ended_can_be_ended_once_more_and_shown(tmp_path):
    (tmp_path / "nothing.py").touch()
    crew = Engines(submit_task(program("nothing.py"), folder="run"), own_folder=True)
    eventually(lambda: crew.job.state == "done", crew.job.why)
    crew.end()
    assert not (tmp_path / "run").exists()  # nothing of them is left, nor asked for
    crew.end()
    assert repr(crew).startswith("Engines(1 ranks, local job ") and repr(crew).endswith(", ended)")


@pytest.mark.parametrize("message", [b"0" * WORD, b"0", b""])
def test_only_the_right_secret_opens_the_connection(message):
    word = "1" * WORD
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = door.getsockname()[:2]
        with socket.create_connection(address) as stranger:
            stranger.sendall(message)
            stranger.shutdown(socket.SHUT_WR)
            assert accept(door, word) is None
        with socket.create_connection(address) as friend:
            friend.sendall(word.encode())
            line = accept(door, word)
        assert line is not None and read(line) == b""  # closed
        line.close()
