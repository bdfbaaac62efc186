"""What the way out of memory is measured by: real pieces through the trainer's own file, none of which is left."""

import tempfile

import numpy as np

from lib_dlhpc.training import probe_disk
from lib_dlhpc.training.alone import Alone
from lib_dlhpc.training.disk import Disk
from lib_dlhpc.training.probe_disk import APART, LEAST_ROUNDS, SHORT, SIZES, measure


def test_each_size_goes_there_and_back_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    moved = {True: [], False: []}
    ask = Disk._ask

    def counted(disk, writes, place, array):
        assert place + array.nbytes <= 2 * APART
        moved[writes].append(array.nbytes)
        return ask(disk, writes, place, array)

    monkeypatch.setattr(Disk, "_ask", counted)
    points = measure(Alone(), 0.0)
    assert [point["size"] for point in points] == list(SIZES)
    for point in points:
        assert len(point["seconds"]) == LEAST_ROUNDS and np.all(np.array(point["seconds"]) > 0)
    first, *written = moved[True]
    assert first == 2 * APART  # all of it once: later nothing asks for room
    assert sorted(written) == sorted(moved[False])
    assert sum(written) == LEAST_ROUNDS * len(SIZES) * SHORT
    assert not list(tmp_path.iterdir())


def test_where_there_can_be_no_such_file_there_are_no_points(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def full(folder, name):
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr(probe_disk, "Disk", full)
    assert measure(Alone(), 0.0) == []
    assert not list(tmp_path.iterdir())
