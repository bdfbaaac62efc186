"""Learners of these tests, in temporary folders."""

import pytest

from lib_dlhpc.classroom import learner, recording


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the learner of this machine, who has not joined."""
    monkeypatch.setenv(learner.HOME, str(tmp_path / "learner"))
    monkeypatch.delenv(recording.CLASS, raising=False)
    recording.enter("")
    return tmp_path / "learner"
