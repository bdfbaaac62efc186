"""A timeline in a file is the timeline; what is none is refused by name."""

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
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


def damaged(path, about=None, **columns):
    """Write the table of ROWS with some columns replaced."""
    save(from_rows(ROWS, 2, "measured"), path)
    with np.load(path) as file:
        whole = {name: file[name] for name in file}
    if about is not None:
        whole["about"] = np.array([whole["about"][0], about, *whole["about"][2:]])
    np.savez(path, **(whole | {name: np.array(column) for name, column in columns.items()}))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"stop": [1.5, 2.0]}, "column stop has 2 rows, column rank 4."),
        ({"rank": [0, 1, -1, 1]}, "column rank, row 2: -1; legal: 0 to 1."),
        ({"rank": [0, 10**9, 1, 1]}, "column rank, row 1: 1000000000; legal: 0 to 1."),
        ({"rank": [0.0, 1.0, 1.0, 1.0]}, "column rank is of float64; expected whole numbers."),
        ({"start": ["0", "0", "0", "0"]}, "column start is of <U1; expected numbers."),
        (
            {"start": [0.0, np.nan, 0.5, 0.5]},
            "column start, row 1: nan; legal: -1e+12 to 1,000,000,000,000.",
        ),
        ({"stop": [1.5, 2.0, np.inf, 0.75]}, "column stop, row 2: inf; legal:"),
        ({"start": [1e18] * 4, "stop": [1e18] * 4}, "column start, row 0: 1e+18; legal:"),
        ({"stop": [1.5, 2.0, 0.75, 0.25]}, "column stop, row 3: 0.25 s, before its start, 0.5 s."),
        ({"kind": [0, 3, 3, 99]}, "column kind, row 3: 99; legal: 0 to 13."),
        ({"stream": [0, 1, -7, 1]}, "column stream, row 2: -7; legal: 0 to 4."),
        ({"name": [0, 1, 2, 4]}, "column name, row 3: 4; legal: 0 to 3."),
        ({"peer": [-1, -1, 2, 0]}, "column peer, row 2: 2; legal: -1 to 1."),
        (
            {"bytes": [0, -5, 64, 64]},
            "column bytes, row 1: -5; legal: 0 to 9,223,372,036,854,775,807.",
        ),
        ({"match": [-2, -1, -1, 1]}, "column match, row 0: -2; legal: -1 to"),
        (
            {"comm": np.array([2**40, 0, 0, 3])},
            "column comm, row 0: 1099511627776; legal: 0 to 2,147,483,647.",
        ),
        ({"rank": [[0, 1], [1, 1]]}, "column rank is not a list: its shape is (2, 2)."),
        ({"start": np.array([None] * 4)}, "column start is damaged, or of no numbers."),
        ({"about": "10000000000"}, "ranks = 10000000000; legal: from 1 to 1,000,000."),
        ({"about": "many"}, "ranks = many; legal: from 1"),
    ],
)
def test_what_no_timeline_has_is_refused_with_its_file_column_and_row(tmp_path, columns, says):
    path = tmp_path / "timeline.npz"
    damaged(path, **columns)
    with pytest.raises(SpecError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: ") and says in str(error.value)


def test_narrower_numbers_are_as_good_and_no_advice_of_numpys_reaches_the_user(tmp_path):
    path = tmp_path / "timeline.npz"
    damaged(path, rank=np.array([0, 1, 1, 1], np.uint8), start=[0, 0, 0, 0])
    for column, kind in COLUMNS.items():
        assert getattr(load(path), column).dtype == kind
    for junk in (b"not an archive", b"\x93NUMPY\x01\x00" + bytes(100), bytes(1000)):
        path.write_bytes(junk)
        with pytest.raises(SpecError, match=r"not a timeline that can be read: a \.npz") as error:
            load(path)
        assert "pickle" not in str(error.value)
