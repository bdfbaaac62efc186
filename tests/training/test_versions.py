"""Laws of a run's versions: the content of snapshot.npz, written when requested, resumed bitwise."""

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment, loads
from lib_dlhpc.storage.snapshots import SnapshotError, SnapshotStore, open_snapshots
from lib_dlhpc.storage.snapshots.plan import (
    Plan,
    experiment_text,
    read_every,
    read_plan,
    version_of,
    write_plan,
)
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.trainer import train

# 1438 samples: 8 steps an epoch.
EXPERIMENT = Experiment(
    model="mlp-digits",
    dataset="digits",
    machine="laptop",
    strategy={"devices_per_node": 1, "batch": 200, "optimizer": "adam"},
    run={"epochs": 2},
)
SHARED = EXPERIMENT.set({"strategy.microbatches": 2})  # takes the path of partitioned networks
LOCAL = EXPERIMENT.set({"strategy.update": "local", "strategy.local_steps": 3})


@pytest.fixture
def run(tmp_path):
    """A function: train in a folder of its own, with a plan; return the run and its store."""

    def run(name, experiment, plan=None):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        if plan:
            write_plan(folder, plan)
        found = train(experiment, SingleRank(), folder)
        return found, SnapshotStore(folder / plan.store) if plan else folder

    return run


@pytest.mark.parametrize(
    "experiment", [EXPERIMENT, SHARED, LOCAL], ids=["whole", "shared", "local"]
)
def test_a_version_holds_what_the_file_would(run, experiment):
    _, folder = run("file", experiment)
    _, store = run("store", experiment, Plan())
    stored = store.load("main")
    text = bytes(stored.pop("experiment")).decode()
    assert loads(text) == experiment == loads(experiment_text(store, store.newest()))
    with np.load(folder / "snapshot.npz") as file:
        assert set(file.files) == set(stored)
        for name, array in stored.items():
            assert array.dtype == file[name].dtype and array.tobytes() == file[name].tobytes()
    assert not (store.folder.parent / "snapshot.npz").exists()


@pytest.mark.parametrize(
    "experiment", [EXPERIMENT, SHARED, LOCAL], ids=["whole", "shared", "local"]
)
@pytest.mark.parametrize(
    ("every", "steps"), [(0, [8, 16]), (5, [5, 10, 15, 16]), (8, [8, 16]), (100, [16])]
)
def test_versions_are_written_when_requested(run, experiment, every, steps):
    found, store = run("run", experiment, Plan(every))
    versions = store.log()
    assert [version.step for version in versions] == steps and store.verify() == []
    assert [version.parent for version in versions] == ["", *(v.id for v in versions[:-1])]
    last = versions[-1].metrics
    assert last["epoch"] == 2 and last["loss"] == found.loss
    assert last["accuracy"] == found.accuracy and last["test_loss"] == found.test_loss
    assert all(("accuracy" in v.metrics) == (v.step % 8 == 0) for v in versions)
    kinds = {(e.stream, e.name) for e in found.timeline if e.kind == "checkpoint"}
    assert ("checkpoint", "write a checkpoint") in kinds


@pytest.mark.parametrize("experiment", [EXPERIMENT, SHARED], ids=["whole", "shared"])
def test_a_run_resumes_bitwise_from_any_version(run, experiment, tmp_path):
    whole, store = run("whole", experiment, Plan(3))
    for version in store.log()[:-1]:
        name = f"from-{version.number}"
        store.branch(name, version)
        found, _ = run(name, experiment, Plan(3, name, "../whole/snapshots"))
        assert found.network.weights.tobytes() == whole.network.weights.tobytes()
        again = store.newest(name)
        assert again == store.newest("main")  # identical versions, metrics included
    assert len(store.log()) == 6 and store.verify() == []


def test_a_branch_may_use_other_options(run):
    _, store = run("one", EXPERIMENT, Plan())
    store.branch("slow", 1)
    slow = EXPERIMENT.set({"training.rate": 1e-5})
    run("two", slow, Plan(0, "slow", "../one/snapshots"))
    versions = store.log()
    assert [v.branch for v in versions] == ["main", "main", "slow"]
    assert versions[2].parent == versions[0].id
    rows = {row.name: row for row in store.diff(2, 3)}
    assert rows["weights"].kind == rows["experiment"].kind == "changed"
    assert rows["place"].kind == "shared"


def test_a_damaged_version_is_refused_by_name(run):
    _, store = run("run", EXPERIMENT, Plan())
    for path in (store.folder / "objects").iterdir():
        data = bytearray(path.read_bytes())
        data[100] ^= 4
        path.write_bytes(data)
    with pytest.raises(SnapshotError, match=r"version 2 \(\w{7}\), \w+: object \w{32}"):
        run("run", EXPERIMENT.set({"run.epochs": 3}), Plan())


def test_another_models_version_is_refused(run):
    run("run", EXPERIMENT, Plan())
    with pytest.raises(SpecError, match=r"weights: \d+ of float32; the model has"):
        run("run", EXPERIMENT.set({"model.widths": [64, 9, 10]}), Plan())


def test_a_full_disk_is_reported_and_earlier_versions_remain(run, monkeypatch):
    _, store = run("run", EXPERIMENT, Plan())
    real = SnapshotStore.save_async

    def full(self, arrays, **about):
        def add(*chunks, **how):
            raise OSError(28, "No space left on device", "objects/new")

        self.objects.add = add
        return real(self, arrays, **about)

    monkeypatch.setattr(SnapshotStore, "save_async", full)
    with pytest.raises(SnapshotError, match=r"step 24 of branch main.*No space left on device"):
        run("run", EXPERIMENT.set({"run.epochs": 4}), Plan())
    again = open_snapshots(store.folder)
    assert [v.step for v in again.log()] == [8, 16] and again.verify() == []


def test_a_plan_reads_back_and_mistakes_are_reported(tmp_path):
    assert read_plan(tmp_path) is None
    for plan in (Plan(), Plan(7, "slow", "../other/snapshots")):
        write_plan(tmp_path, plan)
        assert read_plan(tmp_path) == plan
    assert [read_every(text) for text in ("epoch", "1", 30, "007")] == [0, 1, 30, 7]
    for text in ("0", "-1", "1.5", "", "epochs", "1e3"):
        with pytest.raises(SpecError, match="expected a number of steps, at least 1, or 'epoch'"):
            read_every(text)
    for text in ("", "[]", '{"every": "a"}', '{"step": 1}', '{"branch": "../x"}', '{"every": -1}'):
        (tmp_path / "snapshots.json").write_text(text)
        with pytest.raises(SnapshotError, match=r"snapshots\.json"):
            read_plan(tmp_path)
    with pytest.raises(SnapshotError, match="holds no snapshots"):
        version_of(f"{tmp_path / 'none'}@1")
