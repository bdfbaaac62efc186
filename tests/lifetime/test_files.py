"""Laws of files: writes are atomic, errors name the file, a status is written even on a full disk."""

import errno
import os
from pathlib import Path

import pytest

from lib_dlhpc.lifetime import files


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("named", [True, False])
def test_an_error_names_the_file_and_leaves_nothing(tmp_path, named):
    path = tmp_path / "out.npz"
    path.write_text("old")
    with (
        pytest.raises(OSError, match="No space left") as caught,
        files.replacing(path) as temporary,
    ):
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device", *([str(temporary)] if named else []))
    assert caught.value.filename == str(path)
    assert [each.name for each in tmp_path.iterdir()] == ["out.npz"] and path.read_text() == "old"


@pytest.mark.parametrize("name", [".", "/"])
def test_a_path_without_a_name_is_refused(name):
    with pytest.raises(IsADirectoryError), files.replacing(Path(name)):
        raise AssertionError("nothing is written")


def test_a_folder_replaces_a_folder(tmp_path):
    old = tmp_path / "run"
    old.mkdir()
    (old / "old").touch()
    with files.replacing(old) as new:
        new.mkdir()
        (new / "new").touch()
    assert [each.name for each in old.iterdir()] == ["new"]
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_a_folder_is_never_replaced_by_a_file(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "dear").write_text("kept")
    with pytest.raises(IsADirectoryError, match="results"):
        files.write_text(tmp_path / "results", "{}")
    assert [each.name for each in tmp_path.rglob("*")] == ["results", "dear"]


def test_an_error_of_another_file_is_not_blamed_on_this_one(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, files.replacing(tmp_path / "out"):
        open(tmp_path / "input").close()
    assert caught.value.filename == str(tmp_path / "input") and not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", files.FULL)
@pytest.mark.parametrize("text", ["short", "x" * 3000])
def test_a_status_is_written_into_the_space_it_has(tmp_path, monkeypatch, code, text):
    path = tmp_path / "status.json"
    path.write_text("what was there")
    before = path.stat().st_ino

    def write_text(self, *_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "write_text", write_text)
    files.write_status(path, text)
    assert path.read_bytes().decode() == text and path.stat().st_ino == before
    assert [each.name for each in tmp_path.iterdir()] == ["status.json"]


def test_a_new_file_reuses_the_space_of_another(tmp_path, monkeypatch):
    spare, path = tmp_path / "rank-0.json", tmp_path / "error-0.json"
    spare.write_text("{}")
    monkeypatch.setattr(Path, "write_text", full)
    files.write_status(path, "done", spare)
    assert path.read_bytes() == b"done" and not spare.exists()
    with pytest.raises(OSError, match="No space left") as caught:
        files.write_status(tmp_path / "none.json", "done")
    assert caught.value.filename == str(tmp_path / "none.json")


def test_only_a_full_disk_is_written_in_place(tmp_path, monkeypatch):
    path = tmp_path / "status.json"
    path.write_text("old")
    monkeypatch.setattr(Path, "touch", lambda *_: (_ for _ in ()).throw(PermissionError(13, "no")))
    with pytest.raises(PermissionError):
        files.write_status(path, "new")
    assert path.read_text() == "old"
