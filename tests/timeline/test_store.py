"""A timeline in a file is the timeline; what is none is refused by name."""

import numpy as np
import pytest

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.timeline import from_rows
from lib_dlhpc.timeline.store import load, save
from lib_dlhpc.timeline.table import COLUMNS

ROWS = [
    (0, "compute", "forward", "forward", 0.0, 1.5),
    (1, "communication", "communication", "bucket 1", 0.25, 2.0, 4096, -1),
    (1, "communication", "communication", "message", 0.5, 0.75, 64, 0),
    (1, "communication", "send", "MPI_Send", 0.5, 0.75, 64, 0, 3, 2**40),
]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], []])
def test_what_is_saved_comes_back(tmp_path, rows):
    table = from_rows(rows, 3, "measured")
    save(table, tmp_path / "timeline.npz")
    again = load(tmp_path / "timeline.npz")
    assert list(again) == list(table)
    assert (again.ranks, again.source, again.names) == (3, "measured", table.names)
    for column, kind in COLUMNS.items():
        assert getattr(again, column).dtype == kind
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.npz"]


def test_a_file_from_before_there_were_communicators_is_of_the_world_and_matches_nothing(tmp_path):
    path = tmp_path / "timeline.npz"
    table = from_rows(ROWS[:3], 3, "measured")
    save(table, path)
    with np.load(path) as file:
        old = {name: file[name] for name in file if name not in ("comm", "match")}
    np.savez(path, **old)
    assert list(load(path)) == list(table)
    np.savez(path, **{name: column for name, column in old.items() if name != "peer"})
    with pytest.raises(SpecError, match="not a timeline that can be read"):
        load(path)


def test_a_write_that_fails_leaves_the_file_before(tmp_path, monkeypatch):
    path = tmp_path / "timeline.npz"
    save(from_rows(ROWS, 2, "measured"), path)

    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez_compressed", full)
        with pytest.raises(OSError, match="No space"):
            save(from_rows([], 2, "measured"), path)
    assert len(load(path)) == len(ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.npz"]


def test_what_is_no_timeline_is_refused_by_name(tmp_path):
    path = tmp_path / "timeline.npz"
    with pytest.raises(SpecError, match=r"timeline\.npz"):
        load(path)
    save(from_rows(ROWS, 2, "measured"), path)
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:size])
        with pytest.raises(SpecError, match="not a timeline that can be read"):
            load(path)
    np.savez(path, rank=np.zeros(3))
    with pytest.raises(SpecError, match="not a timeline that can be read"):
        load(path)
