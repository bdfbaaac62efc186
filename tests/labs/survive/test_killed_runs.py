"""Restarts: a run is killed at the chosen points, and the report of each process is correct."""

import pytest

from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.labs.survive.killed_runs import RestartTask, available, run_with_kills

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
FLUSHED = "        file.flush()\n        os.fsync(file.fileno())\n"
IN_PLACE = WHOLE.replace('    os.replace(folder / "new", folder / "state")\n', "").replace(
    '"new"', '"state"'
)
IN_PLACE = IN_PLACE.replace(FLUSHED, "")  # no call of Python's own between open and the end
TASK = RestartTask(seed=7, steps=6, interval=2, saves=(4,), kills=(3, 5), moments=9, longest=120)


def result_of(tmp_path, text, task=TASK):
    (tmp_path / "step.py").write_text(text)
    return run_with_kills(tmp_path / "step.py", task, tmp_path)


def test_a_run_that_saves_correctly(tmp_path):
    result = result_of(tmp_path, WHOLE)
    end, (first, again) = result.reference[6], result.alone
    assert len(result.reference) == 7 and len({str(state) for state in result.reference}) == 7
    assert (first.began, first.saved, first.trained, first.reached) == (0, [2, 4, 6], 0, 6)
    assert first.state == result.reference[0] and first.ended == end and not first.error
    assert again.began == 6 and again.ended == end and again.saved == []
    where = "before {} 1 (open), right after {} 1 (open), before {} 2 (flush), before {} 3 (fsync)"
    where = f"{where}, before {{}} 4 (replace)".replace("{}", "its file call").split(", ")
    for when, (killed, after) in zip(where, result.trials[4], strict=True):
        assert killed.killed == f"in the save after step 4, {when}"
        assert killed.saved == [] and not killed.broken
        assert after.began in (2, 4) and after.state == result.reference[after.began]
        assert after.killed == "after step 6" and not after.error
    assert first.calls[1] == 5
    assert [attempt.killed for attempt in result.journey] == ["after step 3", "after step 5", ""]
    assert [attempt.began for attempt in result.journey] == [0, 2, 4]
    assert result.journey[-1].ended == end
    assert [path.name for path in tmp_path.iterdir()] == ["step.py"]  # nothing is left of them


def test_a_file_that_is_written_in_place_does_not_survive(tmp_path):
    result = result_of(tmp_path, IN_PLACE)
    assert not result.alone[0].error and result.alone[0].ended == result.reference[6]
    after = [after for _, after in result.trials[4]]
    assert any(attempt.error.startswith("resume stopped with EOFError") for attempt in after)


def test_errors_are_reported_with_their_place(tmp_path):
    for change, message in (
        ("raise KeyError('no')", "save after step 2 stopped with KeyError: 'no'"),
        ("os._exit(3)", "after step 2 the process ended with status 3"),
        ("training.weights += 1", ""),
    ):
        result = result_of(
            tmp_path, WHOLE.replace("training):\n    with", f"training):\n    {change}\n    with")
        )
        assert result.alone[0].error == message
        if message:
            assert len(result.alone) == 1 and not result.trials and not result.journey
        else:
            assert result.alone[0].ended != result.reference[6]


def test_a_process_that_hangs_is_ended(tmp_path):
    text = WHOLE.replace("training):\n    with", "training):\n    while True: pass\n    with")
    (attempt,) = result_of(tmp_path, text, TASK._replace(longest=1)).alone
    assert attempt.error.endswith("it did not continue for 1 s") and not attempt.saved


def test_a_file_that_lacks_a_function_is_refused(tmp_path):
    with pytest.raises(LabError, match=r"step\.py does not define resume"):
        result_of(tmp_path, WHOLE.split("def resume")[0])
    with pytest.raises(LabError, match="SyntaxError"):
        result_of(tmp_path, "def save(:")
