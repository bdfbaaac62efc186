"""Real ranks in a network lab: MPI uses its links, allreduces are predicted, runs train and are cancelled."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from short_runs import SHORT

from lib_dlhpc.cli import main
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import JobError, start
from lib_dlhpc.launch.network import NetworkError, available, crossover, network

WORKER = str(Path(__file__).with_name("network_worker.py"))
PATIENCE = 180  # s


@pytest.fixture(scope="module", autouse=True)
def _here(require):
    reason = available()  # a network is set up to see whether it can be
    require(not reason, reason)


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_ranks_communicate_through_their_links(ranks):
    with network(ranks, "1 Gb/s", "0.1 ms") as net:
        told = net.run(ranks, WORKER, "a b", "$(c)", patience=PATIENCE)
    assert told.returncode == 0, told.stderr
    assert told.stdout == f"{ranks} ranks, all right, a b $(c)\n"


def test_fewer_ranks_than_it_has_are_fine_and_more_are_not():
    with network(2, "1 Gb/s", 0) as net:
        assert net.run(1, WORKER, patience=PATIENCE).stdout.startswith("1 ranks")
        with pytest.raises(SpecError, match="this network has 2"):
            net.run(3, WORKER)


def test_in_a_batch_job_it_still_is_this_machines(monkeypatch):
    for name, value in {
        "JOB_ID": "7",
        "JOBID": "7",
        "NODELIST": "n1,n2",
        "JOB_NODELIST": "n1,n2",
        "NNODES": "2",
        "JOB_NUM_NODES": "2",
        "TASKS_PER_NODE": "1(x2)",
    }.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    with network(2, "1 Gb/s", 0) as net:
        assert net.run(2, WORKER, patience=PATIENCE).stdout.startswith("2 ranks")


def test_a_rank_that_fails_is_reported():
    with network(2, "1 Gb/s", 0) as net:
        told = net.run(2, "-c", "raise ValueError('planted')", patience=PATIENCE)
    assert told.returncode != 0 and "planted" in told.stderr


def test_an_error_of_one_rank_ends_those_that_wait_for_it(tmp_path):
    program = (
        "from mpi4py import MPI\nif MPI.COMM_WORLD.rank:\n    raise ValueError('planted')\n"
        "MPI.COMM_WORLD.recv()\n"
    )
    (tmp_path / "fails.py").write_text(program)
    for words in (["-c", program], [str(tmp_path / "fails.py")]):
        with network(2, "1 Gb/s", 0) as net:
            told = net.run(2, *words, patience=PATIENCE)
        assert told.returncode != 0 and "planted" in told.stderr


def test_a_timeout_leaves_no_process():
    with network(2, "1 Gb/s", 0) as net:
        with pytest.raises(subprocess.TimeoutExpired):
            net.run(2, "-c", "import time; time.sleep(1000)", patience=1)
        deadline = time.monotonic() + PATIENCE
        while inside(net) != [net.pid]:
            assert time.monotonic() < deadline, inside(net)
            time.sleep(0.05)


def inside(net):
    """The processes that are in a laboratory."""
    mine, found = os.readlink(f"/proc/{net.pid}/ns/pid"), []
    for pid in psutil.pids():
        with suppress(OSError):  # it has ended, or is another user's
            found += [pid] if os.readlink(f"/proc/{pid}/ns/pid") == mine else []
    return found


def test_a_link_of_its_own_is_slow():
    """Not timed: what went a slow way has waited for as long as its bytes take there, whatever else happened."""
    program = (
        "import time, sys\nfrom mpi4py import MPI\nc = MPI.COMM_WORLD\nb = bytearray(100_000)\n"
        "c.Barrier()\nt = time.perf_counter()\n"
        "for _ in range(2):\n    c.Sendrecv(b, 1 - c.rank, 0, bytearray(b), 1 - c.rank, 0)\n"
        "if c.rank == 0: print(time.perf_counter() - t)\n"
    )
    slow = {(1, 0): ("4 Mb/s", "1 ms")}
    with network(2, "1 Gb/s", 0, links=slow) as net:
        told = net.run(2, "-c", program, patience=PATIENCE)
    assert float(told.stdout) > 2 * 100_000 / 0.5e6 - 0.05, told.stderr


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_allreduces_are_measured_and_predicted(ranks):
    found = crossover.measure(ranks, "200 Mb/s", "1 ms", ["ring", "binomial"], [4096, 65_536])
    assert [(row.algorithm, row.size) for row in found.rows] == [
        (name, size) for size in (4096, 65_536) for name in ("ring", "binomial")
    ]
    for row in found.rows:
        assert row.measured > row.textbook * 0.9  # no message is quicker than its link
        assert row.predicted > row.textbook * 0.9
    assert found.messages.alpha > 0.9e-3 and found.messages.beta > 0.9 * 8 / 200e6
    text = found.as_text()
    assert "predictions are within" in text and "ring and binomial" in text
    assert json.loads(json.dumps(found.as_dict()))["rows"][0]["error"] == found.rows[0].error


def test_the_command_measures_and_runs_programs(capfd):
    words = ["network", "-n", "2", "--bandwidth", "1 Gb/s", "--latency", "0.2 ms"]
    assert main([*words, "--algorithms", "ring", "--sizes", "4 KiB", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["ranks"] == 2
    assert main([*words, "--", WORKER, "x y"]) == 0
    assert capfd.readouterr().out == "2 ranks, all right, x y\n"
    assert main([*words, "--", "-c", "import sys; sys.exit(3)"]) == 3


@pytest.mark.parametrize("end", ["raise ValueError('planted')", "import sys; sys.exit('planted')"])
def test_a_rank_that_fails_ends_those_that_wait_for_it(end):
    program = (
        "from mpi4py import MPI\nif MPI.COMM_WORLD.rank: " + end + "\nMPI.COMM_WORLD.Barrier()"
    )
    words = [sys.executable, "-m", "lib_dlhpc.cli", "network", "-n", "2", "--", "-c", program]
    told = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert told.returncode not in (0, 2) and "planted" in told.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--bandwidth", "fast"], "bandwidth"),
        (["--bandwidth", "1 Tb/s"], "bandwidth"),
        (["--latency", "-1 ms"], "latency"),
        (["-n", "0"], "ranks = 0"),
        (["--algorithms", ""], "algorithms: none"),
        (["--sizes", ""], "sizes: name at least one"),
        (["--sizes", "", "--", "x.py"], "--sizes: applies to measurements"),
        (["--algorithms", "rong"], "ring"),
        (["--algorithms", "ring,ring"], "once"),
        (["--sizes", "6 B"], "sizes"),
        (["--sizes", "1 MiB,4 KiB"], "smallest first"),
        (["--sizes", "1 GiB"], "64 MiB"),
        (["-n", "1"], "at least 2"),
        (["--sizes", "4 KiB", "--", "x.py"], "--sizes"),
        (["--", "none.py"], "none.py: no such program"),
    ],
)
def test_the_command_names_mistakes(words, named, capfd):
    assert main(["network", *words]) == 2
    told = capfd.readouterr().err
    assert named in told and told.count("\n") == 1  # "Measuring ..." is not printed before


def test_an_experiment_trains_in_it_as_it_does_outside():
    with network(2, "200 Mb/s", "0.5 ms") as net:
        inside = start(SHORT, 2, place=net).wait()
    outside = start(SHORT, 2).wait()
    assert inside["ranks"] == 2 and inside["loss"] == outside["loss"]


def test_a_run_in_it_can_be_cancelled():
    with network(2, "10 Mb/s", "5 ms") as net:
        job = start(SHORT.set({"run.epochs": 10_000}), 2, place=net)
        while not job.metrics():
            assert job.state == "running", job.why()
        job.cancel()
        assert job.state == "cancelled"
        with pytest.raises(JobError, match="cancelled"):
            job.wait()


def test_ranks_that_cannot_connect_are_reported(monkeypatch):
    monkeypatch.setattr(crossover, "WORKER", "no_such_module")
    with pytest.raises(NetworkError, match="no_such_module"):
        crossover.measure(2, "1 Gb/s", 0, ["ring"], [4096])
