"""The script that writes slides says what installs what it lacks."""

import runpy
import sys

import pytest


def test_slides_without_their_extra_name_the_command(repository, monkeypatch):
    monkeypatch.setitem(sys.modules, "ziamath", None)  # as if it were not installed
    with pytest.raises(
        SystemExit, match=r"^ziamath is not installed; `pip install 'lib-dlhpc\[slides\]'`"
    ):
        runpy.run_path(str(repository / "instructor_notes" / "slides.py"))
