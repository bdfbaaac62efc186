"""A trace that was made to fill the memory of who reads it is refused by name, in little memory."""

import gzip

import numpy as np
import pytest
from crafted_files import LARGE, SAFE, archive, array, reading, stated, zeros

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.unpack import FREE, RATIO
from lib_dlhpc.timeline.formats import read
from lib_dlhpc.timeline.store import MOST_RANKS, load, save
from lib_dlhpc.timeline.table import COLUMNS, DEFAULTS, Timeline


def columns(rows):
    """What a timeline has, its numbers all zeros."""
    return {"about": array(["measured", "2", "step"])} | {
        name: stated((rows,), kind, rows * np.dtype(kind).itemsize)
        for name, kind in COLUMNS.items()
    }


def test_a_timeline_of_more_rows_than_its_file_can_hold_is_refused(tmp_path):
    rows = LARGE // sum(np.dtype(kind).itemsize for kind in COLUMNS.values())
    crafted = [
        columns(rows),
        columns(3) | {"start": stated((LARGE // 8,), np.float64, LARGE)},
        columns(3) | {"start": stated((10**13,), np.float64, 24)},
        columns(3) | {"about": stated((3,), f"U{LARGE // 12}", LARGE)},
    ]
    paths = [archive(tmp_path / f"{n}.npz", each) for n, each in enumerate(crafted)]
    said, peak = reading(
        "from lib_dlhpc.timeline.formats import read", *(f"read({str(path)!r})" for path in paths)
    )
    for path, text in zip(paths, said, strict=True):
        assert text.startswith(f"SpecError {path}: not a timeline that can be read: "), text
        assert " states " in text
    assert peak < SAFE


@pytest.mark.parametrize("members", [1, 4])
def test_packed_text_of_many_times_its_size_is_refused(tmp_path, members):
    path = tmp_path / "trace.json.gz"
    with open(path, "wb") as file:
        for _ in range(members):
            with gzip.GzipFile(fileobj=file, mode="wb") as packed:
                packed.write(b'{"traceEvents":[')
                for piece in zeros(LARGE // members):
                    packed.write(piece)
    (said,), peak = reading("from lib_dlhpc.timeline.formats import read", f"read({str(path)!r})")
    assert said.startswith(f"SpecError {path}: cannot be read: its ") and "unpack to" in said
    assert peak < SAFE


def regular(ranks, each):
    """A timeline that repeats itself."""
    table = {
        name: np.full(ranks * each, DEFAULTS.get(name, 0), kind) for name, kind in COLUMNS.items()
    }
    table["rank"] = np.repeat(np.arange(ranks), each).astype(np.int32)
    return Timeline(**table, names=("step",), ranks=ranks, source="simulated")


def test_what_is_written_is_read_however_well_it_packs(tmp_path):
    path = tmp_path / "timeline.npz"
    timeline = regular(1000, 1500)
    size = sum(getattr(timeline, name).nbytes for name in COLUMNS)
    assert size > FREE
    save(timeline, path)
    assert path.stat().st_size > size / RATIO
    again = load(path)
    assert all(np.array_equal(getattr(again, name), getattr(timeline, name)) for name in COLUMNS)


def test_ranks_that_no_machine_has_are_refused(tmp_path):
    """Whoever looks at a timeline has arrays of a number a rank."""
    path = tmp_path / "timeline.npz"
    archive(path, columns(3) | {"about": array(["measured", str(MOST_RANKS + 1), "step"])})
    with pytest.raises(SpecError, match=f"ranks = {MOST_RANKS + 1}; legal: from 1 to"):
        read(path)
