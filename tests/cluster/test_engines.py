"""Engines on a real Slurm: cells on ranks of several nodes; they end with a killed notebook."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest
from patience import eventually

from lib_dlhpc.launch import attach
from lib_dlhpc.launch.jobs import ENDS

pytestmark = pytest.mark.usefixtures("slurm")

PROGRAM = """
import json, signal, sys
from lib_dlhpc.launch import Site
from lib_dlhpc.launch.engines import engines

def asked():
    import os
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    return comm.rank, comm.allreduce(1), os.environ["SLURM_NODEID"], os.getpid()

crew = engines(2, to="slurm", site=Site(ranks_per_node=1), folder="run")
print(json.dumps(crew.client[:].apply_sync(asked)), flush=True)
signal.pause()
"""


def test_ranks_of_two_nodes_answer_and_end_with_whoever_asked(tmp_path, own_state):
    asks = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        output = json.loads(asks.stdout.readline())
        assert [each[:3] for each in output] == [[0, 2, "0"], [1, 2, "1"]]
        job = attach(tmp_path / "run")
        assert job.state == "running" and all(psutil.pid_exists(each[3]) for each in output)
    finally:
        os.kill(asks.pid, signal.SIGKILL)
        asks.communicate()
    eventually(lambda: job.state in ENDS, job.why)
    eventually(lambda: not left(tmp_path / "run", [each[3] for each in output]), "the end of all")


def left(folder, pids):
    """The processes of a run folder, and those of some, that have not ended."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        named = any(str(folder) in word for word in process.info["cmdline"] or [])
        if (named or process.info["pid"] in pids) and process.info["status"] != "zombie":
            found.append(process.info)
    return found
