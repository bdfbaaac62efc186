"""Lives: a run is killed where it is told to be, and what each life says of itself is what happened."""

import pytest

from lib_dlhpc.training.lab.lives import LivesTask, available, lived
from lib_dlhpc.training.lab.mistakes import LabError

pytestmark = pytest.mark.skipif(not available(), reason="this system cannot fork")

WHOLE = """
import os, pickle

NAMES = ("weights", "velocity", "rng", "step")


def save(folder, training):
    with open(folder / "new", "wb") as file:
        pickle.dump([getattr(training, name) for name in NAMES], file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(folder / "new", folder / "state")


def resume(folder, training):
    if (folder / "state").exists():
        with open(folder / "state", "rb") as file:
            for name, value in zip(NAMES, pickle.load(file)):
                setattr(training, name, value)
"""
IN_PLACE = WHOLE.replace('os.replace(folder / "new", folder / "state")', "pass").replace(
    '"new"', '"state"'
)
TASK = LivesTask(seed=7, steps=6, interval=2, saves=(4,), kills=(3, 5), moments=9, longest=120)


def told_of(tmp_path, text, task=TASK):
    (tmp_path / "step.py").write_text(text)
    return lived(tmp_path / "step.py", task, tmp_path)


def test_lives_of_a_run_that_saves_well(tmp_path):
    told = told_of(tmp_path, WHOLE)
    end, (first, again) = told.reference[6], told.alone
    assert len(told.reference) == 7 and len({str(state) for state in told.reference}) == 7
    assert (first.began, first.saved, first.trained, first.reached) == (0, [2, 4, 6], 0, 6)
    assert first.state == told.reference[0] and first.ended == end and not first.error
    assert again.began == 6 and again.ended == end and again.saved == []
    for number, (killed, after) in enumerate(told.trials[4], 1):
        where = f"in the save after step 4, before its file call {number} ("
        assert killed.killed.startswith(where) and killed.saved == [] and not killed.broken
        assert after.began in (2, 4) and after.state == told.reference[after.began]
        assert after.killed == "after step 6" and not after.error
    assert len(told.trials[4]) == first.calls[1] == 4  # open, flush, fsync, replace
    assert [life.killed for life in told.journey] == ["after step 3", "after step 5", ""]
    assert [life.began for life in told.journey] == [0, 2, 4]
    assert told.journey[-1].ended == end
    assert [path.name for path in tmp_path.iterdir()] == ["step.py"]  # nothing is left of them


def test_a_file_that_is_written_in_place_does_not_survive(tmp_path):
    told = told_of(tmp_path, IN_PLACE)
    assert not told.alone[0].error and told.alone[0].ended == told.reference[6]
    after = [after for _, after in told.trials[4]]
    assert any(life.error.startswith("resume stopped with EOFError") for life in after)


def test_what_goes_wrong_is_told_where_it_does(tmp_path):
    for change, says in (
        ("raise KeyError('no')", "save after step 2 stopped with KeyError: 'no'"),
        ("os._exit(3)", "after step 2 the process ended with status 3"),
        ("training.weights += 1", ""),
    ):
        told = told_of(
            tmp_path, WHOLE.replace("training):\n    with", f"training):\n    {change}\n    with")
        )
        assert told.alone[0].error == says
        if says:
            assert len(told.alone) == 1 and not told.trials and not told.journey
        else:
            assert told.alone[0].ended != told.reference[6]


def test_a_life_that_does_not_go_on_is_ended(tmp_path):
    text = WHOLE.replace("training):\n    with", "training):\n    while True: pass\n    with")
    (life,) = told_of(tmp_path, text, TASK._replace(longest=1)).alone
    assert life.error.endswith("it did not go on for 1 s") and not life.saved


def test_a_file_that_lacks_a_function_is_refused(tmp_path):
    with pytest.raises(LabError, match=r"step\.py does not define resume"):
        told_of(tmp_path, WHOLE.split("def resume")[0])
    with pytest.raises(LabError, match="SyntaxError"):
        told_of(tmp_path, "def save(:")
