"""Samples as files: what is written is read, of the bytes that were asked for, and what is damaged is found."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.training.check import check
from lib_dlhpc.training.input import sample_files
from lib_dlhpc.training.input.sample_files import Layout, layout_of, written

DIGITS = loads("""
[model]
name = "mlp-digits"
[dataset]
name = "digits"
samples = 50
bytes = "50 kB"
files = 50
directories = 3
test_share = 0.2
[machine]
name = "laptop"
[storage]
tier = "ssd"
""")
X = np.random.default_rng(0).random((40, 8, 8), np.float32)
FORMATS = [
    {},
    {"dataset.files": 7},
    {"storage.format": "packed"},
    {"dataset.bytes": 50.0},
    {"storage.reads_per_file": 3.0, "storage.compression": 2.5},
]


@pytest.mark.parametrize("changes", FORMATS)
def test_what_is_written_is_read_bit_by_bit(changes, tmp_path):
    run = DIGITS.set(changes)
    files = written(run, X, tmp_path / "dataset")
    for sample in np.random.default_rng(1).permutation(40).tolist():
        assert np.array_equal(files.read(sample), X[sample])
    files.close()
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]


def test_files_have_the_number_and_the_bytes_that_are_asked_for(tmp_path):
    written(DIGITS, X, tmp_path / "dataset")
    found = list((tmp_path / "dataset").glob("*/*"))
    assert len(found) == 40 and {path.stat().st_size for path in found} == {1000}
    assert {path.parent.name for path in found} == {"0000", "0001", "0002"}
    packed = written(DIGITS.set({"storage.format": "packed"}), X, tmp_path / "packed")
    packed.close()
    parts = list((tmp_path / "packed").rglob("partition-*"))
    assert sum(path.stat().st_size for path in parts) == 40 * 1000
    assert not list((tmp_path / "packed").glob("samples-*"))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 500))
def test_every_record_has_a_place_of_its_own(samples, files, directories):
    layout = Layout(samples, 10, min(files, samples), directories, 1, False)
    places = [layout.place(sample) for sample in range(samples)]
    assert len(set(places)) == samples
    assert len({name for name, _ in places}) == layout.files
    for name in {name for name, _ in places}:  # one behind the other
        held = [offset for other, offset in places if other == name]
        assert held == [10 * k for k in range(len(held))]


@pytest.mark.parametrize("damage", ["flipped", "cut", "exchanged", "removed"])
def test_damage_is_found_and_its_file_named(damage, tmp_path):
    files = written(DIGITS, X, tmp_path / "dataset")
    path, other = (tmp_path / "dataset" / files.layout.place(sample)[0] for sample in (5, 6))
    record = bytearray(path.read_bytes())
    record[100] ^= 1
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(
            {"flipped": record, "cut": record[:99], "exchanged": other.read_bytes()}[damage]
        )
    with pytest.raises(OSError, match=path.name):
        files.read(5)
    assert np.array_equal(files.read(6), X[6])


def test_a_data_set_that_is_there_is_taken_up_and_another_one_replaced(tmp_path):
    folder = tmp_path / "dataset"
    written(DIGITS, X, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/*")}
    written(DIGITS, X, folder)
    assert before == {path: path.stat().st_mtime_ns for path in folder.glob("*/*")}
    assert np.array_equal(written(DIGITS, X + 1, folder).read(3), X[3] + 1)


def test_a_data_set_too_large_is_refused_with_its_size_and_a_way_out():
    imagenet = DIGITS.set({"dataset.bytes": 140e9})
    with pytest.raises(
        SpecError, match=r"140 GB.*50 samples.*112 GB.*at most 4 GB.*dataset.samples"
    ):
        check(imagenet)
    check(imagenet.set({"storage.tier": ""}))
    fewer = int(4e9 / 2.8e9)
    layout_of(DIGITS.set({"dataset.bytes": 2.8e9 * fewer * 50 / 40}))


def test_a_disk_without_room_is_named(tmp_path, monkeypatch):
    class Usage:
        free = 1000

    monkeypatch.setattr(sample_files.shutil, "disk_usage", lambda path: Usage)
    with pytest.raises(SpecError, match=r"dataset: .* 40 kB as files, .* 1 kB left"):
        written(DIGITS, X, tmp_path / "dataset")
    assert not list(tmp_path.iterdir())


def test_a_disk_that_fills_up_leaves_nothing_and_is_named(tmp_path, monkeypatch):
    def full(layout, x, folder):
        (folder / "0000").mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sample_files, "_write", full)
    with pytest.raises(OSError, match=r"No space left on device: .*dataset"):
        written(DIGITS, X, tmp_path / "dataset")
    assert not list(tmp_path.iterdir())


def _write_for_long(folder: Path) -> None:
    written(DIGITS.set({"dataset.bytes": 4e9}), X, folder)


def test_killed_while_it_writes_nothing_half_written_is_left(tmp_path):
    folder = tmp_path / "dataset"
    process = multiprocessing.get_context("spawn").Process(target=_write_for_long, args=(folder,))
    process.start()
    while not list(tmp_path.glob(".dataset*/0000/*")):
        assert process.is_alive()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    until = time.monotonic() + 60
    while list(tmp_path.iterdir()) and time.monotonic() < until:  # the guard is another process
        time.sleep(0.05)
    assert not list(tmp_path.iterdir())
    written(DIGITS, X, folder)
