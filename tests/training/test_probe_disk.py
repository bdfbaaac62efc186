"""Offload bandwidth: measured with real pieces through the trainer's own file, which leaves nothing behind."""

import tempfile

import numpy as np

from lib_dlhpc.training import probe_disk
from lib_dlhpc.training.disk import Disk
from lib_dlhpc.training.probe_disk import APART, LEAST_ROUNDS, SHORT, SIZES, measure
from lib_dlhpc.training.single_rank import SingleRank


def test_each_size_is_written_and_read_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    moved = {True: [], False: []}
    ask = Disk._ask

    def counted(disk, writes, place, array):
        assert place + array.nbytes <= 2 * APART
        moved[writes].append(array.nbytes)
        return ask(disk, writes, place, array)

    monkeypatch.setattr(Disk, "_ask", counted)
    points = measure(SingleRank(), 0.0)
    assert [point["size"] for point in points] == list(SIZES)
    for point in points:
        assert len(point["seconds"]) == LEAST_ROUNDS and np.all(np.array(point["seconds"]) > 0)
    first, *written = moved[True]
    assert first == 2 * APART  # written once, so that its space is allocated
    assert sorted(written) == sorted(moved[False])
    assert sum(written) == LEAST_ROUNDS * len(SIZES) * SHORT
    assert not list(tmp_path.iterdir())


def test_without_disk_space_there_are_no_points(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def full(folder, name):
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr(probe_disk, "Disk", full)
    assert measure(SingleRank(), 0.0) == []
    assert not list(tmp_path.iterdir())
