"""Runs on real ranks, ended in every way: messages, snapshots, and no process left."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from patience import PATIENCE, eventually
from short_runs import SHORT, ended, left

from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import JobError, start
from lib_dlhpc.spec.experiment import dump
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.timeline.store import load as load_timeline
from lib_dlhpc.training import probe_steps
from lib_dlhpc.training.probe_steps import WARM_UP, experiments, tiny

pytestmark = pytest.mark.usefixtures("ranks_can_start")
# Saved after every step: what is lost is less than one.
EVERY_STEP = {"run.checkpoint_interval": 1e-9}


@pytest.fixture
def experiment():
    return SHORT


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A function: the result and the folder of an undisturbed run of two ranks, by its epochs."""

    @cache
    def run(epochs=2):
        folder = tmp_path_factory.mktemp("straight") / "run"
        return start(SHORT.set({"run.epochs": epochs}), 2, folder).wait(), folder

    return run


@pytest.fixture
def mischief(tmp_path, monkeypatch):
    """A function: `mischief(program)` is run in every rank before it begins."""

    def mischief(program):
        folder = tmp_path / "mischief"
        folder.mkdir(exist_ok=True)
        head = "import os, signal, sys\nif any('worker' in a for a in sys.orig_argv):\n"
        body = "".join(f"    {line}\n" for line in program.strip().splitlines())
        (folder / "sitecustomize.py").write_text(head + body)
        monkeypatch.setenv("PYTHONPATH", str(folder))

    yield mischief


def until_there(path, job):
    """Wait until a running job has written a file; fail with its error if it ends without."""
    eventually(lambda: path.exists() or job.state != "running", what=path)
    assert path.exists(), job.why()


def snapshot(folder):
    with np.load(folder / "snapshot.npz") as file:
        return {name: file[name].tobytes() for name in file.files}, file["place"]


def test_a_run_folder_holds_all_that_was(experiment, tmp_path):
    job = start(experiment, 3, tmp_path / "run")
    result = job.wait()
    assert ended(job) == "done"
    assert json.loads((job.folder / "status.json").read_text())["state"] == "done"
    assert result["samples"] == 2 * 1438 and result["ranks"] == 3 and result["accuracy"] > 0.5
    rows = job.metrics()
    epochs = [row for row in rows if "test_loss" in row]
    assert [row["epoch"] for row in epochs] == [1.0, 2.0]
    assert epochs[-1]["accuracy"] == result["accuracy"]
    assert rows[-2]["step"] == 2 * 15 and rows[-2]["loss"] == result["loss"]
    timeline = load_timeline(job.folder / "timeline.npz")
    assert breakdown(timeline).terms == pytest.approx(result["terms"])
    assert timeline.ranks == 3 and breakdown(timeline).steps == 30


def test_one_rank_or_many_learn_the_same(experiment, tmp_path):
    double = experiment.set({"strategy.precision": "fp64"})
    losses = [start(double, n, tmp_path / str(n)).wait()["test_loss"] for n in (1, 3)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)


def test_other_runs_beside_it_are_reported_before_and_after_and_change_nothing(
    experiment, tmp_path, straight, mischief, monkeypatch
):
    plain, _ = straight()
    steps = WARM_UP + 3  # of each of them, in place of many
    monkeypatch.setattr(probe_steps, "STEPS", steps)
    mischief(f"from lib_dlhpc.training import probe_steps\nprobe_steps.STEPS = {steps}")
    message = start(experiment, 2, tmp_path / "message", beside=0.05).wait()
    assert "beside" not in plain and len(message["beside"]) == 2
    for moment in message["beside"]:
        assert [run["experiment"] for run in moment] == [
            *experiments(2),
            tiny(2),
            *experiments(1),
            tiny(1),
        ]
        small = [run["tiny"] for run in moment]
        assert small == [False] * len(experiments(2)) + [True] + [False] * len(experiments(1)) + [
            True
        ]
        assert all(len(run["busy"]) >= steps - WARM_UP and min(run["busy"]) > 0 for run in moment)
    assert message["test_loss"] == plain["test_loss"] and message["accuracy"] == plain["accuracy"]


def test_a_rank_that_raises_is_named_with_its_place(experiment, tmp_path, mischief):
    mischief("""
from lib_dlhpc.layers.dense import Dense
backward = Dense.backward
def failing(self, weights, gradients, kept, dy):
    if kept.context.step == 3 and os.environ.get("PMI_RANK") == "2" and len(gradients["bias"]) == 32:
        raise ValueError("a cosmic ray")
    return backward(self, weights, gradients, kept, dy)
Dense.backward = failing
""")
    job = start(experiment, 3, tmp_path / "run")
    assert ended(job) == "failed"
    with pytest.raises(
        JobError, match=r"rank 2: ValueError: a cosmic ray \(step 3, layer dense2\)"
    ):
        job.wait()


def test_a_run_that_diverges_reports_where(experiment, tmp_path):
    wild = experiment.set({"training.rate": 1e25, "strategy.optimizer": "sgd"})
    job = start(wild, 2, tmp_path / "run")
    with pytest.raises(JobError, match=r"rank \d: Diverged: .*step [123], first in dense\d"):
        job.wait()
    assert ended(job) == "failed"


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed_is_named_and_costs_less_than_a_step(
    experiment, tmp_path, mischief, victim
):
    mischief(f"""
from lib_dlhpc.layers.dense import Dense
backward = Dense.backward
def deadly(self, weights, gradients, kept, dy):
    if kept.context.step == 20 and os.environ.get("PMI_RANK") == "{victim}":
        os.kill(os.getpid(), signal.SIGKILL)
    return backward(self, weights, gradients, kept, dy)
Dense.backward = deadly
""")
    job = start(experiment.set(EVERY_STEP), 3, tmp_path / "run")
    assert ended(job) == "failed"
    assert job.why() == f"rank {victim}: Killed: ended from outside (SIGKILL) (step 20)"
    _, place = snapshot(job.folder)
    assert list(place) == [20, 1, 5, 20]


@pytest.mark.parametrize("moment", ["half written", "not yet renamed"])
def test_killed_while_it_saves_a_run_keeps_the_snapshot_before(
    experiment, tmp_path, mischief, moment, straight
):
    if moment == "half written":
        patch = """
import numpy as np
write, calls = np.savez, []
def half(file, **arrays):
    calls.append(0)
    if len(calls) == 18:
        file.write(b"PK" * 1000); file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    write(file, **arrays)
np.savez = half
"""
    else:
        patch = """
flush, calls = os.fsync, []
def deadly(file):
    calls.append(0)
    if len(calls) == 18:
        os.kill(os.getpid(), signal.SIGKILL)
    flush(file)
os.fsync = deadly
"""
    often, (_, undisturbed) = experiment.set(EVERY_STEP), straight()
    mischief(patch)
    job = start(often, 2, tmp_path / "run")
    assert ended(job) == "failed" and "rank 0: Killed" in job.why()
    _, place = snapshot(job.folder)
    assert place[0] == 17
    mischief("")
    start(often, 2, job.folder, resume=True).wait()
    assert snapshot(job.folder)[0] == snapshot(undisturbed)[0]
    steps = [row["step"] for row in job.metrics() if "step" in row]
    assert steps == sorted(set(steps)) and steps[-1] == 30


@pytest.mark.slow
def test_killed_at_any_moment_a_run_resumes_to_the_same_end(experiment, tmp_path):
    """Ranks and mpiexec are killed at moments drawn from a seed; the end is the same to the last bit."""
    rng = random.Random(7)
    long = experiment.set(
        {"run.epochs": 10_000, "strategy.optimizer": "adam", "training.rate": 0.001}
    )
    often = long.set({"run.checkpoint_interval": 0.02})
    folder = tmp_path / "run"
    for number, victim in enumerate((2, 0, "mpiexec")):
        job = start(often, 3, folder, resume=number > 0)
        for rank in range(3):
            until_there(folder / f"rank-{rank}.json", job)
        until_there(folder / "snapshot.npz", job)
        time.sleep(rng.uniform(0, 0.4))
        if victim == "mpiexec":
            process = job._process.pid
        else:
            process = json.loads((folder / f"rank-{victim}.json").read_text())["process"]
        os.kill(process, signal.SIGKILL)
        assert ended(job) == "failed"  # so long a run is not through by then
        if victim != "mpiexec":
            assert job.why().startswith(f"rank {victim}: Killed")
        _, place = snapshot(folder)  # is whole
    end = {"run.epochs": int(place[0]) // 15 + 2}
    start(often.set(end), 3, folder, resume=True).wait()
    start(long.set(end), 3, tmp_path / "straight").wait()
    assert snapshot(folder)[0] == snapshot(tmp_path / "straight")[0]


def test_cancel_ends_all_ranks(experiment, tmp_path):
    job = start(experiment.set({"run.epochs": 10_000}), 3, tmp_path / "run")
    until_there(job.folder / "snapshot.npz", job)
    job.cancel()
    assert ended(job) == "cancelled"
    assert json.loads((job.folder / "status.json").read_text())["state"] == "cancelled"
    with pytest.raises(JobError, match="cancelled"):
        job.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the maps of a process")
def test_memory_that_ranks_share_has_no_name_that_would_outlive_them(experiment, tmp_path):
    job = start(experiment.set({"run.epochs": 10_000}), 3, tmp_path / "run")
    until_there(job.folder / "snapshot.npz", job)
    maps = [psutil.Process(pid).memory_maps(grouped=False) for pid in left(job.folder)]
    paths = {each.path for process in maps for each in process if "/dev/shm/" in each.path}
    job.cancel()
    ended(job)
    assert paths, "the ranks share no memory: what is looked at here is not there"
    assert not [path for path in paths if Path(path.removesuffix(" (deleted)")).exists()]


def test_what_cannot_be_started_is_refused_and_changes_nothing(experiment, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(SpecError, match="holds no run to resume"):
        start(experiment, 2, folder, resume=True)
    assert not folder.exists()
    start(experiment, 1, folder).wait()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "file").write_text("")
    larger = experiment.set({"model.widths": [64, 10]})
    for arguments, words in (
        ((experiment, 0, folder), "ranks = 0"),
        ((experiment, 2, folder), "holds a run already"),
        ((experiment, 2, tmp_path / "file"), "exists"),
        ((experiment, 2, tmp_path / "file" / "run"), "Not a directory"),
        ((larger, 2, folder, True), r"another \[model\]"),
        ((experiment.set({"training.rate": 0.5}), 2, folder, True), r"another \[training\]"),
        ((experiment.set({"run.seed": 1}), 2, folder, True), r"another \[run\]"),
    ):
        with pytest.raises(SpecError, match=words):
            start(*arguments)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such lock")
def test_a_folder_in_use_is_refused(experiment, tmp_path):
    long = experiment.set({"run.epochs": 10_000})
    job = start(long, 1, tmp_path / "run")
    until_there(job.folder / "snapshot.npz", job)
    with pytest.raises(SpecError, match=r"a run is in progress.*status\.json"):
        start(long, 1, tmp_path / "run", resume=True)
    os.kill(json.loads((job.folder / "status.json").read_text("utf-8"))["pid"], 0)  # there it is
    job.cancel()
    assert ended(job) == "cancelled"


def test_a_run_may_be_extended_on_other_ranks(experiment, tmp_path, straight):
    folder = shutil.copytree(straight()[1], tmp_path / "run")
    done = start(experiment, 2, folder, resume=True).wait()
    assert done["samples"] == 0 and done["loss"] is None and done["accuracy"] > 0.5
    more = start(experiment.set({"run.epochs": 3}), 3, folder, resume=True).wait()
    assert more["samples"] == 1438
    with (
        np.load(folder / "snapshot.npz") as ours,
        np.load(straight(3)[1] / "snapshot.npz") as theirs,
    ):
        np.testing.assert_allclose(ours["weights"], theirs["weights"], rtol=0, atol=1e-5)


def test_a_run_resumes_under_another_layout_with_the_same_global_batch(
    experiment, tmp_path, straight
):
    folder, split = tmp_path / "run", {"strategy.microbatches": 2, "run.epochs": 2}
    start(experiment.set({"run.epochs": 1}), 1, folder).wait()
    whole = {"strategy.batch": 100, **split}
    start(experiment.set({"strategy.pipeline": 2, **whole}), 2, folder, resume=True).wait()
    thinner = experiment.set({"strategy.tensor": 2, **split})
    with pytest.raises(
        SpecError, match=r"steps have \d+ samples, but the steps of this run would have \d+"
    ):
        start(thinner, 2, folder, resume=True)
    last = experiment.set({"strategy.tensor": 2, **whole, "run.epochs": 3})
    assert start(last, 2, folder, resume=True).wait()["samples"] == 1438
    with (
        np.load(folder / "snapshot.npz") as ours,
        np.load(straight(3)[1] / "snapshot.npz") as theirs,
    ):
        np.testing.assert_allclose(ours["weights"], theirs["weights"], rtol=0, atol=1e-5)


def test_metrics_bear_a_line_half_written(experiment, tmp_path):
    job = start(experiment, 1, tmp_path / "run")
    job.wait()
    whole = job.metrics()
    with open(job.folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 99, "lo')
    assert job.metrics() == whole
    again = start(experiment.set({"run.epochs": 3}), 1, job.folder, resume=True)
    again.wait()
    assert again.metrics()[: len(whole)] == whole and len(again.metrics()) > len(whole)


@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_stopping_the_command_ends_all_ranks(experiment, tmp_path, how, status):
    dump(experiment.set({"run.epochs": 10_000}), tmp_path / "long.toml")
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "lib_dlhpc.cli", "run", str(tmp_path / "long.toml")]
    process = subprocess.Popen(
        [*command, "-n", "2", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually((folder / "snapshot.npz").exists, what="a snapshot")
    process.send_signal(how)
    out, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == status and not out
    assert message.count("\n") == 1 and "--resume" in message and "Traceback" not in message
    eventually(lambda: not left(folder), what="the end of all ranks")


STUCK = """
import json, pathlib, sys, time
table = {"rank": 1, "step": 7, "layer": "", "kind": "Killed", "text": "gone", "trace": "", "echo": False, "time": 0}
pathlib.Path(sys.argv[1], "error-1.json").write_text(json.dumps(table))
time.sleep(1000)
"""


def test_a_rank_that_is_killed_or_raises_ends_by_a_signal(experiment, tmp_path, mischief):
    """Of a rank that ends with a status mpiexec may leave the others be."""
    alone = SimpleNamespace(
        command=lambda ranks, *words: [sys.executable, *words],
        environment=lambda ranks: dict(os.environ),
    )
    for name, how in (("killed", "os.kill(os.getpid(), signal.SIGKILL)"), ("raises", "1 / 0")):
        mischief(f"""
from lib_dlhpc.layers.dense import Dense
def deadly(*_):
    {how}
Dense.backward = deadly
""")
        job = start(experiment, 1, tmp_path / name, place=alone)
        assert ended(job) == "failed" and "rank 0" in job.why()
        assert job._process.returncode == -signal.SIGKILL


def test_ranks_left_after_a_failed_rank_are_ended(experiment, tmp_path, monkeypatch):
    """mpiexec does it within a second, or so it should."""
    monkeypatch.setattr("lib_dlhpc.launch.mpi.LATE", 0.5)
    place = SimpleNamespace(
        command=lambda ranks, *words: [sys.executable, "-c", STUCK],
        environment=lambda ranks: dict(os.environ),
    )
    job = start(experiment, 2, tmp_path / "run", place=place)
    with pytest.raises(JobError, match=r"[Rr]ank 1.*step 7"):
        job.wait()
    assert job.state == "failed"
