"""Counting changes nothing, sees every way to a file, and leaves Python's functions as they were."""

import builtins
import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.labs.repair_the_input.file_calls import KINDS, counted
from lib_dlhpc.storage import open_store, pack
from lib_dlhpc.storage.mount import mounted


@pytest.fixture
def folder(tmp_path):
    """Four files in two folders."""
    for name in ("a/1", "a/2", "b/3", "b/4"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{name}\n".encode() * 3000)
    return tmp_path / "tree"


def calls_of(root, action):
    with counted(root) as calls:
        result = action()
    return calls.now(), result


def only(counts):
    """The kinds that were counted, without zeros."""
    return {kind: counts.calls[kind] for kind in KINDS if counts.calls[kind]}


def plain(path):
    with open(path, "rb") as file:
        return file.read()


def text(path):
    with open(path, encoding="utf-8") as lines:
        return "".join(lines)


def pieces(path):
    found = b""
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(4096):
            found += piece
    return found


@pytest.mark.parametrize(
    ("read", "reads"),
    [
        (plain, {1}),
        (Path.read_bytes, {1}),
        (lambda path: path.read_text(encoding="utf-8"), {1}),
        (text, {3, 4}),
        (pieces, {4}),
    ],
)
def test_every_way_of_reading_gives_the_bytes_and_is_counted(folder, read, reads):
    path = folder / "a" / "1"
    right = read(path)
    counts, found = calls_of(folder, lambda: read(path))
    assert found == right
    assert only(counts) in [{"open": 1, "read": many, "close": 1} for many in reads]


@pytest.mark.parametrize(
    "way",
    [
        lambda path: io.FileIO(path).close(),
        lambda path: os.close(os.open(path, os.O_RDONLY)),
        lambda path: np.fromfile(path, np.uint8),
        lambda path: np.memmap(path, np.uint8, "r"),
        lambda path: open(path, "ab").close(),
        lambda path: open(os.fsencode(path)).close(),
        lambda path: open(os.path.relpath(path)).close(),
    ],
)
def test_nothing_is_opened_unseen(folder, way):
    counts, _ = calls_of(folder, lambda: way(folder / "a" / "1"))
    assert counts.calls["open"] == 1


def test_names_and_status(folder):
    path = folder / "a" / "1"
    counts, _ = calls_of(folder, lambda: (path.exists(), os.path.getsize(path), os.lstat(path)))
    assert only(counts) == {"stat": 3}
    counts, _ = calls_of(folder, lambda: (os.listdir(folder), list(os.walk(folder))))
    assert only(counts)["list"] == 4


def test_what_lies_elsewhere_is_not_counted(folder):
    beside = folder.with_name("tree-not")
    beside.mkdir()
    (beside / "x").write_bytes(b"x")
    counts, _ = calls_of(folder, lambda: (plain(beside / "x"), os.stat(beside), os.listdir(beside)))
    assert only(counts) == {}


def test_all_threads_are_counted(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()] * 25
    with ThreadPoolExecutor(4) as pool:
        counts, _ = calls_of(folder, lambda: list(pool.map(plain, paths)))
    assert only(counts) == {"open": 100, "read": 100, "close": 100}


def test_python_is_as_before_also_after_an_error(folder):
    before = builtins.open, io.open, os.stat, os.listdir, os.scandir, os.lstat, os.access
    with pytest.raises(ZeroDivisionError), counted(folder):
        assert builtins.open is not before[0]
        _ = 1 / 0
    assert (builtins.open, io.open, os.stat, os.listdir, os.scandir, os.lstat, os.access) == before
    with counted(folder) as calls:
        pass
    plain(folder / "a" / "1")
    assert only(calls.now()) == {}


def test_errors_are_those_of_python_and_are_counted(folder):
    with counted(folder) as calls:
        with pytest.raises(FileNotFoundError):
            plain(folder / "none")
        with pytest.raises(IsADirectoryError):
            plain(folder)
        with pytest.raises(ValueError, match="mode"):
            open(folder / "a" / "1", "q").close()
    assert calls.now().calls["open"] == 2


def test_a_store_is_counted_by_what_it_is_asked_for(folder):
    pack(folder, folder.parent / "store", partitions=2)
    with counted(folder.parent) as calls, open_store(folder.parent / "store") as store:
        assert store.read("a/1") == plain(folder / "a" / "1")
        before = calls.now()
        store.read_many(["a/2", "b/3"])
        list(store.read_ahead([["b/4"], ["a/1", "a/2", "b/3"]]))
        store.open("a/1").read()
        since = calls.now() - before
    assert (since.requests, since.files) == (4, 7)
    assert since.stored == 7 * 12000
    assert calls.now().stores == 1
    assert since.metadata == 0 and before.calls["open"] == 1  # the one of this test


def test_files_on_their_way_are_counted_until_they_are_delivered(folder):
    pack(folder, folder.parent / "store")
    with counted(folder.parent) as calls, open_store(folder.parent / "store") as store:
        batches = store.read_ahead([["a/1"], ["a/2", "b/3"], ["b/4"]], ahead=1)
        next(batches)
        assert calls.wait_for(3, 0.0) and not calls.wait_for(4, 0.0)
        calls.delivered = 3
        list(batches)
    assert calls.most_ahead == 3


def test_nobody_is_waited_for_where_no_thread_could_ask(folder):
    with counted(folder) as calls:
        assert not calls.wait_for(1, 3600.0)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(calls.asked, 1, 10)
            assert calls.wait_for(1, 3600.0)


def test_a_mounted_store_is_no_folder(folder):
    pack(folder, folder.parent / "store")
    view = folder.parent / "view"
    with (
        counted(folder.parent) as calls,
        open_store(folder.parent / "store") as store,
        mounted(store, view),
    ):
        before = calls.now()
        found = sorted(os.listdir(view)), plain(view / "a" / "1")
        since = calls.now() - before
    assert found == (["a", "b"], b"a/1\n" * 3000)
    assert only(since) == {} and since.files == 1


def test_programs_are_counted(folder):
    counts, _ = calls_of(folder, lambda: subprocess.run([sys.executable, "-c", ""], check=True))
    assert counts.programs >= 1
