"""`dlhpc snapshots`: prints the store's content; errors are one line, with status 2."""

import re

import numpy as np
import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.spec.experiment import Experiment, load
from lib_dlhpc.storage.snapshots import SnapshotStore, open_snapshots
from lib_dlhpc.storage.snapshots.plan import Plan, read_plan, write_plan
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.trainer import train

EXPERIMENT = Experiment(
    model="mlp-digits",
    dataset="digits",
    machine="laptop",
    strategy={"devices_per_node": 1, "batch": 200},
    run={"epochs": 2},
)


@pytest.fixture
def folder(tmp_path):
    """A run with versions 1 and 2 on main, and 3 on a branch from 1."""
    for name, plan, experiment in (
        ("run", Plan(), EXPERIMENT),
        ("slow", Plan(0, "slow", "../run/snapshots"), EXPERIMENT.set({"training.rate": 1e-4})),
    ):
        (tmp_path / name).mkdir()
        write_plan(tmp_path / name, plan)
        if name == "slow":
            open_snapshots(tmp_path / "run/snapshots").branch("slow", 1)
        train(experiment, SingleRank(), tmp_path / name)
    return tmp_path / "run"


@pytest.fixture
def dlhpc(folder, capsys):
    """A function: run `dlhpc snapshots`, expect a status, and return what it printed."""

    def dlhpc(action, *arguments, status=0, run=folder):
        assert main(["snapshots", action, str(run), *map(str, arguments)]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return dlhpc


def test_the_log_is_the_tree(dlhpc, folder):
    one, two, three = (version.short for version in open_snapshots(folder / "snapshots").log())
    lines = dlhpc("log").splitlines()
    assert [re.sub(r"  step.*?(  \[|$)", r"\1", line) for line in lines] == [
        f"● 1   {one}",
        f"├─● 3   {three}  [slow]",
        f"● 2   {two}  [main]",
    ]
    assert dlhpc("log", run=folder.parent / "slow") == dlhpc("log", run=folder / "snapshots")
    assert all("accuracy 0." in line and "loss " in line for line in lines)


def test_a_version_shows_all_it_holds(dlhpc, folder):
    version = open_snapshots(folder / "snapshots").version(2)
    text = dlhpc("show", version.short)
    assert version.id in text and version.parent in text and "after step 16" in text
    for name, array in version.arrays.items():
        assert re.search(rf"{name} +{re.escape(array.dtype)} +{array.shape[0]} ", text)
    for name, value in version.metrics.items():
        assert f"{name} = {value:.6g}" in text


def test_a_difference_reports_how_far_apart(dlhpc):
    text = dlhpc("diff", "main", "slow")
    assert re.search(r"weights +changed .*\|b - a\| / \|a\| = 0\.\d+", text)
    assert re.search(r"place +shared", text) and re.search(r"accuracy +0\.\d+ -> 0\.\d+", text)
    assert "changed" not in dlhpc("diff", 1, 1)
    (place,) = re.findall(r"place +changed.*", dlhpc("diff", 1, 2))
    assert "|a|" not in place  # it is counts and a text that differ, not a point in space


def test_versions_are_found_tagged_branched_and_forgotten(dlhpc, folder):
    assert dlhpc("find", "step > 8", "step<=16").count("step 16") == 2
    assert dlhpc("find", "accuracy > 1") == ""
    assert "tag best: version 2" in dlhpc("tag", 2, "best")
    assert "best" in dlhpc("tag") and "[tag best]" in dlhpc("log")
    assert "branch again begins at version 2" in dlhpc("branch", "best", "--name", "again")
    assert dlhpc("branch").split()[::4] == ["again", "main", "slow"]
    dlhpc("forget", "again")
    dlhpc("forget", "best")
    assert dlhpc("tag") == "" and "again" not in dlhpc("branch")


def test_what_is_forgotten_is_swept(dlhpc, folder):
    dlhpc("forget", "slow")
    message = dlhpc("gc", "--dry-run")
    assert "version 3" in message and "1 version would go" in message and "2 stay" in message
    assert len(open_snapshots(folder / "snapshots").log()) == 3
    assert dlhpc("gc").replace("is gone", "would go") == message
    assert "2 versions, every byte intact" in dlhpc("verify")
    assert "1 version is gone" in dlhpc("gc", "--keep-last", 1)
    assert "what came before was removed" in dlhpc("log")


def test_a_version_becomes_a_run_folder(dlhpc, folder, tmp_path):
    store = open_snapshots(folder / "snapshots")
    assert "branch new begins at version 1" in dlhpc("branch", 1, "--out", tmp_path / "new")
    plan = read_plan(tmp_path / "new")
    assert plan == Plan(0, "new", "../run/snapshots")
    assert load(tmp_path / "new/experiment.toml") == EXPERIMENT
    dlhpc("restore", "slow", "--out", tmp_path / "file")
    assert load(tmp_path / "file/experiment.toml").training.rate == 1e-4
    wanted = store.load("slow")
    del wanted["experiment"]
    with np.load(tmp_path / "file/snapshot.npz") as file:
        assert {name: file[name].tobytes() for name in file.files} == {
            name: array.tobytes() for name, array in wanted.items()
        }
    whole = train(EXPERIMENT, SingleRank()).network.weights
    assert (
        train(EXPERIMENT, SingleRank(), tmp_path / "new").network.weights.tobytes()
        == whole.tobytes()
    )
    before = sorted(tmp_path.rglob("*"))
    assert "is not empty" in dlhpc("branch", 1, "--out", tmp_path / "new", status=2)
    assert "is not empty" in dlhpc("restore", 1, "--out", tmp_path / "file", status=2)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_flipped_bit_is_reported_with_version_array_and_object(dlhpc, folder):
    (path,) = list((folder / "snapshots/objects").iterdir())[:1]
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    assert re.search(rf"version \d \(\w+\), \w+: object {path.name}", dlhpc("verify", status=1))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", 9], "no such version"),
        (["show", "mian"], "Did you mean 'main'"),
        (["diff", 1, "x"], "no such version"),
        (["find", "accuracy"], "expected a condition"),
        (["find", "accurcy>0"], "Did you mean 'accuracy'"),
        (["branch", 1], "give --name NAME or --out DIR"),
        (["branch", 1, "--name", "../x"], "expected letters"),
        (["branch", 1, "--name", "main"], "there is a branch main already"),
        (["branch", "live", 3], "expected `dlhpc snapshots branch"),
        (["branch", "--name", "y"], "VERSION --name NAME"),
        (["tag", 1], "give the version a name"),
        (["tag", 1, "7"], "not a number"),
        (["forget", "nothing"], "no branch or tag nothing"),
        (["gc", "--keep-last", 0], "expected a whole number, at least 1"),
    ],
)
def test_errors_are_reported(dlhpc, folder, words, message):
    before = sorted(folder.rglob("*"))
    text = dlhpc(*words, status=2)
    assert message in text and text.startswith("dlhpc: ") and text.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


def test_where_there_are_none_it_is_reported(dlhpc, tmp_path):
    (tmp_path / "empty").mkdir()
    for run in (tmp_path / "empty", tmp_path / "nowhere"):
        assert "a run saves some with --snapshot-every" in dlhpc("log", status=2, run=run)


def test_nothing_found_is_reported(dlhpc, capsys, folder):
    for words, message in (
        (("find", "accuracy > 1"), "None of 3 versions matches."),
        (("tag",), "no tags"),
    ):
        assert main(["snapshots", words[0], str(folder), *words[1:]]) == 0
        printed = capsys.readouterr()
        assert printed.out == "" and message in printed.err


def test_forget_reports_the_removed_versions(dlhpc, folder):
    dlhpc("tag", 3, "kept")
    text = dlhpc("forget", "main")
    assert (
        "1 version was reachable only from it" in text and f"{folder} continues this branch" in text
    )
    text = dlhpc("forget", "slow")
    assert (
        "no version was reachable only from it" in text
        and f"{folder.parent / 'slow'} continues" in text
    )
    assert "2 versions were reachable only from it" in (text := dlhpc("forget", "kept"))
    assert "went on" not in text


@pytest.mark.parametrize("content", [b"", b"0" * 32 + b"\n"])
def test_a_broken_name_hides_nothing_else(dlhpc, folder, capsys, content):
    whole = dlhpc("log")
    (folder / "snapshots/branches/slow").write_bytes(content)
    assert main(["snapshots", "log", str(folder)]) == 1
    printed = capsys.readouterr()
    assert printed.out == whole.replace("  [slow]", "")
    mend = f"`dlhpc snapshots forget {folder} slow`, then `dlhpc snapshots branch {folder} VERSION --name slow`"
    assert mend in printed.err and printed.err.count("\n") == 1
    assert mend in dlhpc("verify", status=1)
    assert main(["snapshots", "branch", str(folder)]) == 1
    printed = capsys.readouterr()
    assert "main" in printed.out and mend in printed.err
    dlhpc("forget", "slow")
    dlhpc("branch", 3, "--name", "slow")
    assert dlhpc("log") == whole


def test_a_run_that_saves_meanwhile_breaks_no_name(dlhpc, folder, monkeypatch):
    store = open_snapshots(folder / "snapshots")
    state, log = store.load("main"), SnapshotStore.log

    def beside(self):
        found = log(self)
        if self is not store:
            with monkeypatch.context() as patched:
                patched.setattr(SnapshotStore, "log", log)
                number = len(log(store))
                store.save(state | {"weights": state["weights"] * number}, step=number)
        return found

    monkeypatch.setattr(SnapshotStore, "log", beside)
    assert "version" not in dlhpc("log")


def test_a_damaged_version_is_not_called_removed(dlhpc, folder):
    first = open_snapshots(folder / "snapshots").version(1)
    (folder / f"snapshots/versions/{first.id}.json").write_bytes(b"{}")
    text = dlhpc("log")
    assert f"version {first.short}, the one before, is damaged" in text and "removed" not in text


def test_a_store_that_cannot_be_changed_is_reported(dlhpc, folder):
    (folder / "snapshots/lock").unlink()
    (folder / "snapshots/lock").mkdir()  # nobody can open it, not even who may do all
    for words in (["gc"], ["tag", 1, "x"], ["forget", "slow"], ["branch", 1, "--name", "x"]):
        text = dlhpc(*words, status=2)
        assert "cannot be changed" in text and text.count("\n") == 1
