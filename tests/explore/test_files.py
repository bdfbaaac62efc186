"""A copy of the course is the course, and overwrites nothing."""

import re

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.explore import files
from lib_dlhpc.explore.course import LABS
from lib_dlhpc.labs import hints


def test_a_clone_has_the_course_beside_the_package(repository):
    assert files.folder() == repository


def test_a_copy_has_the_notebooks_and_no_work_of_learners(tmp_path, monkeypatch):
    clone = tmp_path / "clone"
    files.copy(clone)
    (clone / "labs" / "site.toml").write_text("[site]")
    (clone / "labs" / "02_overlap" / "step.py").write_text("mine = 1")
    monkeypatch.setattr(files, "folder", lambda: clone)
    files.copy(tmp_path / "copy")
    names = {file.relative_to(tmp_path / "copy") for file in (tmp_path / "copy").rglob("*.*")}
    assert not {name for name in names if name.name in ("site.toml", "step.py", "store.py")}
    assert {name.parts[0] for name in names} == set(files.PARTS)


def test_links_of_a_copy_to_pages_lead_to_files_of_it(tmp_path):
    files.copy(tmp_path)
    links = 0
    for part in ("modules", "labs"):
        for page in (
            file for kind in ("md", "ipynb") for file in (tmp_path / part).rglob(f"*.{kind}")
        ):
            text = page.read_text(encoding="utf-8")
            for to in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+\.(?:md|ipynb))[)#]", text):
                assert (page.parent / to).is_file(), (page.relative_to(tmp_path), to)
                links += 1
    assert links > 100


def test_a_copy_has_the_hints_of_all_labs(tmp_path):
    files.copy(tmp_path)
    assert all(hints.read(tmp_path / "labs" / lab) for lab in LABS)


@pytest.mark.parametrize("part", files.PARTS)
def test_a_copy_never_overwrites(part, tmp_path, capsys):
    (tmp_path / part).mkdir()
    (tmp_path / part / "mine.txt").write_text("work")
    assert main(["explore", "--copy", str(tmp_path)]) == 2
    assert f"{tmp_path / part}: exists, and is not overwritten" in capsys.readouterr().err
    assert [file.name for file in tmp_path.rglob("*")] == [part, "mine.txt"]
