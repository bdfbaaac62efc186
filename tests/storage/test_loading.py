"""Partitions are preloaded sequentially: contents equal the files, within the memory limit."""

import os

import pytest
from numpy.random import default_rng
from patience import eventually

from lib_dlhpc.storage import loading, memory, open_store, pack
from lib_dlhpc.storage.index import load_manifest
from lib_dlhpc.storage.loading import Loading
from lib_dlhpc.storage.partition import open_partition

SIZE = 2_500_001  # B: not a whole number of pieces


@pytest.fixture
def target(tmp_path):
    (tmp_path / "tree").mkdir()
    for number in range(3):
        (tmp_path / "tree" / str(number)).write_bytes(default_rng(number).bytes(SIZE))
    pack(tmp_path / "tree", tmp_path / "store", partitions=3)
    return tmp_path / "store"


@pytest.fixture
def held(target):
    files = load_manifest(target).partitions
    return {number: open_partition(target, number, file) for number, file in enumerate(files)}


def loaded(held, *arguments, **options):
    before = dict(held)
    on_its_way = Loading(held, *arguments, **options)
    for thread in on_its_way._threads:
        thread.join()
    return {number for number in held if held[number] is not before[number]}


def test_own_partitions_are_loaded_into_private_memory(held):
    assert loaded(held, [0, 1, 2], own=[0, 2]) == {0, 2}
    for part in held.values():
        assert part.content == part.path.read_bytes() and part.content.readonly
    for part in (held[0], held[2]):  # so it outlives its file
        kept = part.path.read_bytes()
        os.truncate(part.path, 0)
        assert part.content == kept


def test_an_empty_partition_is_loaded(tmp_path):
    (tmp_path / "tree").mkdir()
    pack(tmp_path / "tree", tmp_path / "store", partitions=1)
    manifest = load_manifest(tmp_path / "store")
    held = {0: open_partition(tmp_path / "store", 0, manifest.partitions[0])}
    loaded(held, [0], own=[0])
    assert held[0].content == b""


def test_only_what_leaves_half_of_the_memory_free_is_loaded(held, monkeypatch):
    total = sum(len(part.content) for part in held.values())
    monkeypatch.setattr(loading, "available", lambda: 4 * total - 1)
    assert loaded(held, [0, 1, 2], own=[0, 1, 2], neighbors=2) == set()
    monkeypatch.setattr(loading, "available", lambda: 4 * total)
    assert loaded(held, [0, 1, 2], own=[0, 1, 2], neighbors=2) == {0, 1, 2}


def test_a_partition_that_shrinks_meanwhile_stays_where_it_is(held):
    os.truncate(held[1].path, SIZE - 1)
    held[2].path.unlink()
    assert loaded(held, [0, 1, 2], own=[0, 1, 2]) == {0}


def test_a_store_is_read_whether_it_is_loaded_or_not(target, monkeypatch):
    for bytes_free in (0, 1 << 62):
        monkeypatch.setattr(loading, "available", lambda free=bytes_free: free)
        with open_store(target) as store:
            assert store.read_many(["2", "0"]) == [default_rng(n).bytes(SIZE) for n in (2, 0)]


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="tells no maps")
def test_a_closed_store_maps_nothing(target):
    def mapped():
        with open("/proc/self/maps") as maps:
            return str(target) in maps.read()

    store = open_store(target)
    store.read("1")
    assert mapped()
    store.close()
    eventually(lambda: not mapped(), "the store lets go of its partitions")


def test_readers_do_not_wait_for_ever(held, tmp_path, monkeypatch):
    """A pipe without a writer emulates a disk that hangs."""
    os.mkfifo(tmp_path / "pipe")
    held[0] = held[0]._replace(path=tmp_path / "pipe")
    monkeypatch.setattr(loading, "WAIT", 0.0)
    on_its_way = Loading(held, [0])
    (thread,) = on_its_way._threads
    on_its_way.wait()
    assert thread.is_alive()
    on_its_way.stop()
    with open(tmp_path / "pipe", "wb"):
        thread.join()


def test_memory_is_what_machine_and_group_leave(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  7 kB\nHugePages_Total:  0\n")
    (tmp_path / "cgroup").write_text("1:name=systemd:/old\n0::/job/step\n")
    step = tmp_path / "groups" / "job" / "step"
    step.mkdir(parents=True)
    monkeypatch.setattr(memory, "_MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUP", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")
    assert memory.available() == 7 * 1024
    (step / "memory.max").write_text("max\n")
    (step / "memory.current").write_text("100\n")
    assert memory.available() == 7 * 1024
    (step.parent / "memory.max").write_text("5000\n")
    (step.parent / "memory.current").write_text("1000\n")
    assert memory.available() == 4000
    (tmp_path / "groups" / "memory.max").write_text("600\n")
    (tmp_path / "groups" / "memory.current").write_text("0\n")
    assert memory.available() == 600
    monkeypatch.setattr(memory, "_MACHINE", tmp_path / "none")
    assert memory.available() >= 0
