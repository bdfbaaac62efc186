"""What version 0.1.0 wrote still opens: experiment files, run folders of whole and of split networks, snapshots.

tests/data/version_0.1.0.tar.gz was written by that version, before a step became one program.
"""

import tarfile
import warnings
from pathlib import Path

import pytest

from lib_dlhpc import load, predict
from lib_dlhpc.launch import start
from lib_dlhpc.spec import workflow
from lib_dlhpc.storage.snapshots import open_snapshots
from lib_dlhpc.timeline import breakdown
from lib_dlhpc.timeline.store import load as load_timeline

ARCHIVE = Path(__file__).parents[1] / "data" / "version_0.1.0.tar.gz"
RUNS = {"whole": [10, 20, 23], "stages": [20, 40, 45]}  # steps of its versions
with tarfile.open(ARCHIVE) as archive:
    FILES = sorted(name for name in archive.getnames() if name.endswith(".toml"))


@pytest.fixture
def written(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path)  # our own file; early 3.11 has no filters
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_experiment_files_are_read_and_predicted(written, name):
    read = workflow.load if "coupled" in name else load
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        experiment = read(written / name)
    assert ["normalization" in str(each.message) for each in found] == [True] * len(found)
    assert len(found) == ("old_words" in name)
    if read is load:
        assert float(predict(experiment).step_time) > 0


@pytest.mark.parametrize("run", RUNS)
def test_timelines_and_snapshots_of_a_run_are_whole(written, run):
    folder = written / run
    timeline = load_timeline(folder / "timeline.npz")
    assert timeline.ranks == 2 and breakdown(timeline).terms["forward"] > 0
    store = open_snapshots(folder / "snapshots")
    assert [version.step for version in store.log()] == RUNS[run]
    assert not store.verify()


@pytest.mark.parametrize("run", RUNS)
def test_a_resumed_run_ends_as_one_of_today(written, run, ranks_can_start):
    """Within 1e-6, as weights are 32-bit numbers."""
    longer = load(written / run / "experiment.toml").set({"run.epochs": 2})
    resumed = start(longer, 2, written / run, resume=True).wait()
    straight = start(longer, 2, written / "today").wait()
    for name in ("loss", "test_loss"):
        assert resumed[name] == pytest.approx(straight[name], rel=1e-6)
