"""Output files: written once, there when they are closed, kept when the store closes, all or nothing."""

import multiprocessing
import os
import resource
import signal

import pytest
from patience import PATIENCE

from lib_dlhpc.storage import open_store, pack, verify
from lib_dlhpc.storage.errors import AlreadyThere, IsFolder, NotFolder, StoreError
from lib_dlhpc.storage.mount import mounted


@pytest.fixture
def target(tmp_path):
    (tmp_path / "tree" / "in").mkdir(parents=True)
    (tmp_path / "tree" / "in" / "packed").write_bytes(b"packed")
    pack(tmp_path / "tree", tmp_path / "store", partitions=2)
    return tmp_path / "store"


def write(store, name, data):
    with store.create(name) as file:
        file.write(data)


def test_a_written_file_is_there_when_it_is_closed(target):
    with open_store(target) as store:
        file = store.create("out/log")
        file.write(b"one ")
        assert not store.exists("out/log")
        file.write(b"two")
        file.close()
        assert store.read("out/log") == b"one two" and store.stat("out/log").size == 7
        assert store.listdir() == ["in", "out"] and store.listdir("out") == ["log"]
        assert [top for top, _, _ in store.walk()] == ["", "in", "out"]
        write(store, "in/beside ☃", b"")
        assert store.listdir("in") == ["beside ☃", "packed"] and store.stat("out").is_dir
        both = store.read_many(["out/log", "in/packed", "in/beside ☃"])
        assert both == [b"one two", b"packed", b""]
        assert list(store.read_ahead([["out/log"], ["in/packed", "out/log"]]))[1][1] == b"one two"
        assert store.names == ("in/packed", "in/beside ☃", "out/log")
        with pytest.raises(IsFolder):
            store.read("out")


def test_a_file_is_written_once(target):
    with open_store(target) as store:
        write(store, "out", b"1")
        for name in ("out", "in/packed", "in"):
            with pytest.raises(AlreadyThere, match=name):
                store.create(name)
        for name in ("out/in it", "in/packed/in it"):
            with pytest.raises(NotFolder):
                store.create(name)
        for name in ("../x", "/x", "", "a/../b", "a\0"):
            with pytest.raises(StoreError):
                store.create(name)
        first = store.create("being written")
        with pytest.raises(AlreadyThere):
            store.create("being written")
        first.discard()
        write(store, "being written", b"2")


def test_a_failed_writing_leaves_nothing(target):
    with open_store(target) as store:
        with pytest.raises(ZeroDivisionError), store.create("half") as file:
            file.write(b"ha")
            raise ZeroDivisionError
        assert not store.exists("half")
        write(store, "half", b"whole")
    with open_store(target) as store:
        assert store.read("half") == b"whole"


def test_the_store_keeps_what_was_written(target):
    for turn in range(3):
        with open_store(target) as store:
            assert all(store.read(f"out/{before}") == bytes([before]) * 9 for before in range(turn))
            with pytest.raises(AlreadyThere):
                store.create("out/0") if turn else store.create("in/packed")
            write(store, f"out/{turn}", bytes([turn]) * 9)
    assert verify(target) == []
    (target / "written" / "out" / "1").write_bytes(b"other")
    (target / "written" / "stranger").write_bytes(b"")
    with open_store(target) as store, pytest.raises(StoreError, match=r"'out/1'.*damaged"):
        store.read("out/1")
    assert len(verify(target)) == 2


def test_a_file_that_is_closed_after_the_store_is_named(target, tmp_path):
    store = open_store(target)
    write(store, "whole", b"1")
    with mounted(store, tmp_path / "data") as here:
        text = open(f"{here}/out/late.txt", "w", encoding="utf-8")  # noqa: SIM115
    text.write("words")
    late, given_up = store.create("late"), store.create("given up")
    late.write(b"2")
    with pytest.raises(StoreError, match=r"'given up', 'late', 'out/late.txt'.*before its store"):
        store.close()
    store.close()
    for name, file in (("late.txt", text), ("late", late)):
        with pytest.raises(StoreError, match=f"{name}' is lost: it was still open"):
            file.close()
        file.close()
    given_up.discard()
    assert verify(target) == []
    with open_store(target) as store:
        assert store.names == ("in/packed", "whole")


def test_an_error_of_the_caller_is_not_hidden_by_its_open_files(target):
    with pytest.raises(ZeroDivisionError) as found, open_store(target) as store:
        write(store, "whole", b"1")
        file = store.create("late")
        raise ZeroDivisionError
    assert found.value.__context__ is None
    file.discard()
    with open_store(target) as store:
        assert store.names == ("in/packed", "whole")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_cannot_write(target):
    def child():
        with pytest.raises(StoreError, match=r"'late'.*forked process cannot write"):
            store.create("late")
        with pytest.raises(StoreError, match=r"'mine'.*forked process cannot write"):
            mine.close()
        assert store.read("in/packed") == b"packed"
        store.close()

    with open_store(target) as store:
        mine = store.create("mine")
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == 0
        mine.close()
    with open_store(target) as store:
        assert store.names == ("in/packed", "mine")


def test_a_full_disk_keeps_nothing_half(target):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = open_store(target)
    write(store, "small", b"1")
    write(store, "large", bytes(100_000))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        with pytest.raises(StoreError, match="'large' cannot be written"):
            store.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert not any(files for _, _, files in os.walk(target / "written"))
    assert verify(target) == []
    with open_store(target) as store:
        assert store.names == ("in/packed",)
