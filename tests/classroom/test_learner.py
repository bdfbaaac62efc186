"""Nothing is written before a learner consents, and nothing is left after they take it back."""

import json

import pytest

from lib_dlhpc.classroom import classes, learner, record, recording
from lib_dlhpc.errors import SpecError


def test_nothing_is_written_before_consent(folder):
    assert recording.record("one_step", "exposed", "guess", answer="3") is None
    recording.opened("one_step")
    assert not folder.exists()
    assert recording.seed("one_step", "attainable") is None


def test_after_joining_every_answer_is_in_the_record(folder):
    joined = learner.join(folder, "Anna")
    assert learner.at_home() == joined
    recording.record("one_step", "exposed", "guess", answer="3", right=True)
    assert recording.last("one_step", "exposed").answer == "3"
    assert recording.last("one_step", "other") is None
    (entry,) = record.entries(folder)
    assert entry.learner == joined.id and joined.token not in entry.line()


def test_a_folder_to_hand_in_has_no_secret(folder):
    joined = learner.join(folder, "Anna", "http://room:8000/?token=door")
    recording.record("one_step", "exposed", "guess", answer="3")
    about = json.loads((folder / learner.ABOUT).read_text())
    assert about == {"name": "Anna", "id": joined.id, "joined": joined.joined}
    written = "".join(file.read_text() for file in folder.iterdir())
    assert joined.token not in written and "door" not in written
    assert learner.secret_file(folder).stat().st_mode & 0o077 == 0
    learner.forget(folder)
    assert list(folder.parent.iterdir()) == []


def test_one_command_deletes_all_but_what_is_not_ours(folder):
    learner.join(folder)
    recording.record("one_step", "exposed", "guess", answer="3")
    (folder / "thesis.txt").write_text("mine")
    learner.forget(folder)
    assert [file.name for file in folder.iterdir()] == ["thesis.txt"]
    assert recording.record("one_step", "exposed", "guess", answer="3") is None


def test_a_variant_is_the_learners_own_and_stays():
    seeds = {learner.seed(token, question) for token in "ab" for question in ("x", "y")}
    assert len(seeds) == 4
    assert learner.seed("a", "x") in seeds


def test_a_name_is_one_line(folder):
    with pytest.raises(SpecError, match="one line"):
        learner.join(folder, "Anna\nBert")
    assert not folder.exists()


def test_in_a_class_a_visitor_is_who_has_the_token(tmp_path, folder, monkeypatch):
    learner.join(folder, "the teacher, whose machine it is")
    place = tmp_path / "class"
    anna = classes.admit(place, "Anna")
    monkeypatch.setenv(recording.CLASS, str(place))
    assert recording.record("one_step", "exposed", "guess", answer="1") is None
    recording.enter("made up")
    assert recording.record("one_step", "exposed", "guess", answer="2") is None
    recording.enter(anna.token)
    recording.record("one_step", "exposed", "guess", answer="3")
    assert [entry.answer for entry in record.entries(anna.folder)] == ["3"]
    assert record.entries(folder) == []
    written = b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())
    assert anna.token.encode() not in written


def test_pages_for_others_record_nothing_for_the_owner_of_the_machine(folder, monkeypatch):
    learner.join(folder)
    monkeypatch.setenv(recording.CLASS, recording.NOBODY)
    assert recording.record("one_step", "exposed", "guess", answer="1") is None


def test_a_class_has_the_same_keys_after_a_restart(tmp_path):
    first = classes.keys(tmp_path / "class")
    assert classes.keys(tmp_path / "class") == first and first.cookie
    (tmp_path / "class" / classes.SETTINGS).write_text("[]")
    with pytest.raises(SpecError, match=r"class\.json: not the settings"):
        classes.keys(tmp_path / "class")
