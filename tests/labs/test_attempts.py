"""A check of a lab is an attempt in the record of a learner who has joined."""

import pytest

from lib_dlhpc.classroom import learner, record, recording
from lib_dlhpc.labs.attempts import attempted, lab_here, report
from lib_dlhpc.labs.findings import broken, kept


@pytest.fixture
def joined(tmp_path, monkeypatch):
    monkeypatch.setenv(learner.HOME, str(tmp_path / "learner"))
    monkeypatch.delenv(recording.CLASS, raising=False)
    return learner.join(tmp_path / "learner")


def test_a_check_of_a_lab_is_an_attempt(joined, tmp_path, monkeypatch):
    lab = tmp_path / "labs" / "02_overlap"
    lab.mkdir(parents=True)
    monkeypatch.chdir(lab)
    found = [kept("A", "a."), broken("B", "b.")]
    attempted(found, "Your step")
    report(found[:1])
    first, second = record.entries(joined.folder)
    assert (first.module, first.question, first.answer, first.right) == (
        *("02_overlap", "Your step", "B"),
        False,
    )
    assert (second.question, second.answer, second.right) == ("checks", "", True)
    assert lab_here() == "02_overlap"


def test_a_check_outside_of_a_lab_is_none_and_says_so(joined, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = attempted([kept("A", "a.")])
    assert lab_here() == "" and record.entries(joined.folder) == []
    assert "not in your record" in said and tmp_path.name in said and "01_data" in said


def test_a_copied_lab_records_and_says_so(joined, tmp_path, monkeypatch):
    lab = tmp_path / "desk" / "02_overlap"
    lab.mkdir(parents=True)
    (lab / "checks.py").touch()
    monkeypatch.chdir(lab)
    for number in (1, 2):
        said = report([kept("A", "a.")])
        assert said.endswith(f"Attempt {number} at 02_overlap is in your record.")
    assert {entry.module for entry in record.entries(joined.folder)} == {"02_overlap"}


def test_who_has_not_joined_hears_nothing_of_records(joined, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    learner.forget(joined.folder)
    assert attempted([kept("A", "a.")]) == ""


def test_an_attempt_that_cannot_be_recorded_says_so(joined, tmp_path, monkeypatch):
    lab = tmp_path / "labs" / "02_overlap"
    lab.mkdir(parents=True)
    monkeypatch.chdir(lab)
    (joined.folder / learner.RECORD).mkdir()
    said = report([kept("A", "a.")])
    assert "All 1 hold." in said and "not in your record" in said and "Is a directory" in said
