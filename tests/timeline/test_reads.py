"""Reads of a store are rows of kind input: one a read, with its bytes; and the store is as it was."""

import threading

import pytest

from lib_dlhpc.storage import StoreError, open_store, pack
from lib_dlhpc.storage.filesystem import PackedFileSystem
from lib_dlhpc.storage.mount import mounted
from lib_dlhpc.timeline.collecting import Part, assemble
from lib_dlhpc.timeline.reads import trace_reads
from lib_dlhpc.timeline.recorder import Recorder


@pytest.fixture
def store(tmp_path):
    (tmp_path / "tree").mkdir()
    for number in range(6):
        (tmp_path / "tree" / f"{number}.txt").write_bytes(b"x" * number)
    pack(tmp_path / "tree", tmp_path / "packed")
    return tmp_path / "packed"


def reads_of(log):
    table = assemble([Part(0, log.rows(), log.words)], 1)
    assert table.where("", "input").all()
    return [(event.stream, event.name, event.bytes) for event in table]


def test_each_read_is_one_row_with_its_bytes_on_the_stream_of_who_reads(store):
    log = Recorder()
    with trace_reads(open_store(store), log) as traced:
        assert len(traced.names) == 6 and traced.read("3.txt") == b"xxx"
        assert traced.read_many(["1.txt", "5.txt"]) == [b"x", b"xxxxx"]
        batches = list(traced.read_ahead([["1.txt"], ["2.txt", "4.txt"]]))
        assert batches == [[b"x"], [b"xx", b"xxxx"]]
        thread = threading.Thread(target=traced.read, args=("2.txt",))
        thread.start()
        thread.join()
        assert reads_of(log) == [
            ("compute", "read", 3),
            ("compute", "read", 6),
            ("compute", "read ahead", 1),
            ("compute", "read ahead", 6),
            ("input", "read", 2),
        ]
        with pytest.raises(FileNotFoundError):
            traced.read("7.txt")
        arriving = traced.read_ahead([["1.txt"], ["2.txt"]])
        next(arriving)
        arriving.close()
    assert len(log.rows()) == 6, "what failed, and what was not asked for any more, is no read"
    with pytest.raises(StoreError):
        traced.read("3.txt")


def test_reads_through_a_file_system_or_a_mount_are_reported_as_well(store, tmp_path):
    log = Recorder()
    with trace_reads(open_store(store), log) as traced:
        assert PackedFileSystem(traced).cat_file("4.txt") == b"xxxx"
        prefix = tmp_path / "mounted"
        with mounted(traced, prefix):
            assert (prefix / "5.txt").read_bytes() == b"xxxxx"
    assert [size for _, _, size in reads_of(log)] == [4, 5]
