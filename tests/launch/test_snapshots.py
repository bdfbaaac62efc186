"""Runs with snapshots: killed and resumed they give the same bits, and other runs begin at any version."""

import os
import random
import signal
import time

import psutil
import pytest
from patience import PATIENCE

from lib_dlhpc.cli import main
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch import JobError, start
from lib_dlhpc.spec.experiment import Experiment, dump
from lib_dlhpc.storage.snapshots import open_snapshots
from lib_dlhpc.storage.snapshots.plan import Plan, read_plan

# 1438 samples: 15 steps an epoch.
SHORT = Experiment(
    model="mlp-digits",
    dataset="digits",
    machine="laptop",
    strategy={"devices_per_node": 2, "batch": 50},
    run={"epochs": 2},
)


pytestmark = pytest.mark.usefixtures("ranks_can_start")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, ranks_can_start):
    """An undisturbed run of two ranks: its folder, with versions of steps 4, 8, ..., 28 and 30."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    start(SHORT, 2, folder, snapshot_every=4).wait()
    return folder


def versions(folder):
    return open_snapshots(folder / "snapshots").log()


def test_a_run_saves_the_requested_versions(whole):
    assert [version.step for version in versions(whole)] == [*range(4, 30, 4), 30]
    assert not (whole / "snapshot.npz").exists()
    assert read_plan(whole) == Plan(4)


def test_a_run_begins_at_a_version_of_another_and_shares_its_tree(whole, tmp_path):
    folder = tmp_path / "a branch!"
    result = start(SHORT, 2, folder, origin=f"{whole}@2").wait()
    plan, store = read_plan(folder), open_snapshots(whole / "snapshots")
    assert plan.every == 4 and plan.branch == "a-branch"
    assert result["samples"] == 1438 * 2 - 8 * 100
    # Nothing was changed, so to the same bits.
    assert store.newest("a-branch") == store.newest("main")
    slow = SHORT.set({"training.rate": 1e-3, "run.epochs": 1})
    start(slow, 3, tmp_path / "slow", origin=f"{folder}@2", snapshot_every="epoch").wait()
    newest = store.newest("slow")
    assert newest.step == 15 and newest.parent == store.version(2).id
    assert open_snapshots(folder / read_plan(folder).store).newest("slow") == newest
    more = slow.set({"run.epochs": 2})
    start(more, 2, tmp_path / "slow", resume=True, snapshot_every=10).wait()
    assert [v.step for v in store.log() if v.branch == "slow"] == [15, 20, 30]


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"snapshot_every": 0}, "expected a number of steps"),
        ({}, {"snapshot_every": "often"}, "expected a number of steps"),
        ({}, {"origin": "{whole}@99"}, "no such version"),
        ({}, {"origin": "{whole}-not@1"}, "holds no snapshots"),
        ({"model.widths": [64, 8, 10]}, {"origin": "{whole}@1"}, r"has another \[model\]"),
        ({"strategy.batch": 20}, {"origin": "{whole}@1"}, "within an epoch.*: global batch; start"),
        ({"run.seed": 5}, {"origin": "{whole}@1"}, "within an epoch.*: run.seed; start"),
        ({}, {"origin": "{whole}@1", "resume": True}, "holds no run to resume"),
        (
            {"machine.nodes": 2, "strategy.update": "asynchronous", "strategy.servers": 1},
            {"snapshot_every": 3},
            "only at the end of an epoch",
        ),
    ],
)
def test_what_cannot_be_is_reported_before_anything_is_changed(
    whole, tmp_path, changes, options, message
):
    options = {
        name: value.format(whole=whole) if isinstance(value, str) else value
        for name, value in options.items()
    }
    before = sorted(whole.rglob("*"))
    with pytest.raises(SpecError, match=message):
        start(SHORT.set(changes), 2, tmp_path / "new", **options)
    assert not (tmp_path / "new").exists() and sorted(whole.rglob("*")) == before


def test_a_folder_with_versions_is_not_a_new_run(whole, tmp_path):
    (tmp_path / "snapshots").mkdir()
    with pytest.raises(SpecError, match="holds snapshots already"):
        start(SHORT, 2, tmp_path)
    with pytest.raises(SpecError, match="starts from its own snapshots"):
        start(SHORT, 2, whole, resume=True, origin=f"{whole}@1")


def test_a_damaged_store_is_reported_by_the_run(whole, tmp_path):
    start(SHORT, 1, tmp_path / "run", snapshot_every="epoch").wait()
    for path in (tmp_path / "run/snapshots/objects").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    job = start(SHORT.set({"run.epochs": 3}), 1, tmp_path / "run", resume=True)
    with pytest.raises(JobError, match=r"SnapshotError: version 2 \(\w+\), \w+: .*object \w+"):
        job.wait()


def test_the_store_of_a_resumed_run_must_exist(tmp_path):
    """No silent restart: neither without the store, nor without the branch."""
    one, two = tmp_path / "one", tmp_path / "two"
    start(SHORT, 1, one, snapshot_every="epoch").wait()
    start(SHORT, 1, two, origin=f"{one}@1").wait()

    def refused(folder, message):
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        with pytest.raises(SpecError, match=message):
            start(SHORT.set({"run.epochs": 3}), 1, folder, resume=True, snapshot_every=5)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before

    for name in ("two", "main"):
        assert main(["snapshots", "forget", str(one), name]) == 0
        refused(
            tmp_path / name.replace("main", "one"), f"branch {name} of .*, which does not exist"
        )
    for ref in (one / "snapshots/branches").iterdir():
        ref.unlink()
    open_snapshots(one / "snapshots").gc()
    refused(one, "branch main of .*, which does not exist")
    (one / "snapshots").rename(tmp_path / "elsewhere")
    refused(one, "one continues from .*snapshots, which does not exist")
    refused(two, r"two continues from .*\.\./one/snapshots, which does not exist")


def test_a_run_without_a_snapshot_restarts(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nif any('worker' in a for a in sys.orig_argv):\n    time.sleep(1000)\n"
    )
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        job = start(SHORT.set({"run.epochs": 1}), 1, tmp_path / "run", snapshot_every="epoch")
    kill(tmp_path / "run")
    job.cancel()
    assert versions(tmp_path / "run") == []
    start(SHORT.set({"run.epochs": 1}), 1, tmp_path / "run", resume=True).wait()
    assert len(versions(tmp_path / "run")) == 1


def test_a_run_with_a_snapshot_may_begin_to_keep_versions(tmp_path):
    folder, short = tmp_path / "run", SHORT.set({"run.epochs": 1})
    start(short, 1, folder).wait()
    start(short, 1, folder, resume=True, snapshot_every="epoch").wait()  # nothing to do
    result = start(SHORT, 1, folder, resume=True).wait()
    assert result["samples"] == 1438 and [v.step for v in versions(folder)][-1] == 30


def test_the_command_keeps_versions_and_begins_at_them(tmp_path, capsys):
    path, one, two = tmp_path / "e.toml", tmp_path / "one", tmp_path / "two"
    dump(SHORT, path)
    assert main(["run", str(path), "-n", "1", "--out", str(one), "--snapshot-every", "epoch"]) == 0
    assert "2 versions of its state" in capsys.readouterr().out
    words = ["--set", "run.epochs=3", "--from", f"{one}@2", "--out", str(two)]
    assert main(["run", str(path), "-n", "2", *words]) == 0
    out = capsys.readouterr().out
    assert "1 version of its state" in out and f"dlhpc snapshots log {two}" in out
    assert f"stored in {one}/snapshots, as branch two" in out
    assert main(["run", str(path), "--out", str(tmp_path / "x"), "--from", f"{one}@7"]) == 2
    assert "no such version" in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_the_advice_after_damage_works(tmp_path, capsys):
    """If the newest version is damaged, the message names the newest intact one, and a run can begin there."""
    run, new = tmp_path / "run", tmp_path / "new"
    start(SHORT, 1, run, snapshot_every=8).wait()
    store = open_snapshots(run / "snapshots")
    store.objects.refresh()
    last, before = (set(store.version(number).arrays["weights"].chunks) for number in (4, 3))
    key = next(iter(last - before))
    path = store.folder / "objects" / store.objects.where[key].object
    path.write_bytes(path.read_bytes()[:-9])
    assert main(["run", "--resume", str(run), "--set", "run.epochs=3"]) == 1
    message = capsys.readouterr().err
    assert f"dlhpc run --from {run}@3" in message and "--resume" not in message
    assert main(["run", "-n", "1", "--from", f"{run}@3", "--out", str(new)]) == 0
    assert main(["run", "-n", "1", "--from", str(new), "--out", str(tmp_path / "newest")]) == 0
    message = capsys.readouterr().out
    assert "already complete" in message and f"stored in {run}/snapshots" in message
    (store.folder / "branches/main").write_bytes(b"")
    assert main(["run", "--resume", str(run), "--set", "run.epochs=3"]) == 2
    assert f"dlhpc run --from {run}@3" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_killed_at_random_moments_gives_the_same_bits(whole, tmp_path):
    """mpiexec and all ranks are killed repeatedly; the run is resumed each time."""
    draw, folder, kills, done = random.Random(3), tmp_path / "run", 0, 0
    long = SHORT.set({"run.epochs": 24})  # 90 versions, of which 6 kills leave some to the last run
    start(long, 2, tmp_path / "calm", snapshot_every=4).wait()
    while kills < 6:
        job = start(long, 2, folder, resume=kills > 0, snapshot_every=4)
        target = done + draw.randrange(3, 12)
        while job.state == "running" and count(folder) < target:
            time.sleep(0.002)
        if job.state == "done":  # so busy a machine that nobody looked in time
            break
        time.sleep(draw.uniform(0, 0.02))
        kill(folder)
        kills += job.state == "failed"
        assert open_snapshots(folder / "snapshots").verify() == []
        done = count(folder)
    start(long, 2, folder, resume=True).wait()
    stores = [open_snapshots(tmp_path / name / "snapshots") for name in ("calm", "run")]
    assert stores[0].newest().id == stores[1].newest().id  # so all numbers are the same bits
    assert [v.id for v in stores[0].log()] == [v.id for v in stores[1].log()]
    assert kills > 0 and stores[1].verify() == []


def count(folder):
    """How many versions there are, as seen from outside."""
    return len(list((folder / "snapshots/versions").glob("[!.]*")))


def kill(folder):
    """End all processes of a run, without a word."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = [
            process
            for process in psutil.process_iter(["cmdline", "status"])
            if str(folder) in (process.info["cmdline"] or [])
            and process.info["status"] != psutil.STATUS_ZOMBIE
        ]
        if not found:
            return
        for process in found:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)
    raise AssertionError("processes are left")
