"""One face to all formats: the name says which; whole or not at all; mistakes name the file and what was expected."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_events import events

from lib_dlhpc import SpecError
from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.timeline import Event, from_rows
from lib_dlhpc.timeline.formats import FORMATS, read, write
from lib_dlhpc.timeline.rows import Rows

TICKS = st.integers(0, 10**12).map(lambda ticks: ticks / 1e9)
ENDINGS = [ending for endings in FORMATS.values() for ending in endings]
ROW = Event(0, "compute", "region", "a", 0.5, 1.5)


def needed(ending):
    if ending == ".otf2":
        pytest.importorskip("otf2")


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=15)
@given(rows=st.lists(events(times=TICKS, sizes=2**62), max_size=20))
def test_one_format_to_another_and_back_loses_nothing(tmp_path_factory, ending, rows):
    needed(ending)
    folder = tmp_path_factory.mktemp("formats")
    write(from_rows(rows, 5, "simulated"), folder / "a.npz")
    write(read(folder / "a.npz"), folder / f"b{ending}")
    write(read(folder / f"b{ending}"), folder / "c.npz")
    ticks = [row._replace(stop=round(row.stop * 1e9) / 1e9) for row in rows]
    kept = rows if ending != ".otf2" else ticks
    again = read(folder / "c.npz")
    assert sorted(again) == sorted(kept)
    assert (again.ranks, again.source) == (5, "simulated")


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_written_again_is_replaced_and_nothing_is_left_aside(tmp_path, ending):
    needed(ending)
    path = tmp_path / f"run{ending}"
    for rows in ([ROW] * 3, [ROW]):
        write(from_rows(rows, 1, "measured"), path)
        assert list(read(path)) == rows
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_run_folder_is_its_timeline(tmp_path):
    write(from_rows([ROW], 1, "measured"), tmp_path / "timeline.npz")
    assert list(read(tmp_path)) == [ROW]


def test_the_format_can_be_named(tmp_path):
    write(from_rows([ROW], 1, "measured"), tmp_path / "plain", to="chrome")
    os.rename(tmp_path / "plain", tmp_path / "plain.json")
    assert list(read(tmp_path / "plain.json")) == [ROW]


@pytest.mark.parametrize("name", ["run", "run.txt", "run.json.bz2", "npz"])
def test_a_name_of_no_format_is_refused(tmp_path, name):
    (tmp_path / name).write_text("{}")
    for act in (read, lambda path: write(from_rows([ROW], 1, "measured"), path)):
        with pytest.raises(SpecError, match=rf"{name}: expected a name that ends in \.npz, \.json"):
            act(tmp_path / name)
    assert (tmp_path / name).read_text() == "{}"


def test_a_folder_without_a_trace_names_the_subfolder_that_has_some(tmp_path):
    where = rf"{tmp_path}: a folder without a trace; expected files that end in \.npz, .*\.sqlite\."
    (tmp_path / "notes.md").touch()
    with pytest.raises(SpecError, match=f"{where}$"):
        read(tmp_path)
    deep = tmp_path / "plugins" / "profile" / "2026_01_01"
    deep.mkdir(parents=True)
    (deep / "host.trace.json.gz").touch()
    with pytest.raises(SpecError, match=rf"{where} There are some in {deep}\.$"):
        read(tmp_path)


def test_nothing_to_read_is_said():
    with pytest.raises(SpecError, match="No trace is named"):
        read()


@pytest.mark.parametrize("folder", [False, True])
def test_what_fails_half_way_leaves_what_was_there(tmp_path, folder):
    path = tmp_path / "out"
    path.write_text("before")
    with pytest.raises(OSError, match="full"), replacing(path) as temporary:
        if folder:
            temporary.mkdir()
            (temporary / "half").write_text("half")
        else:
            temporary.write_text("half")
        raise OSError("full")
    assert path.read_text() == "before" and len(list(tmp_path.iterdir())) == 1


def test_growing_columns_refuse_what_they_cannot_hold():
    rows = Rows()
    for wrong in (
        {"rank": 2**31},
        {"bytes": 2**63},
        {"match": 1.5},
        {"stream": "gpu"},
        {"kind": "gemm"},
    ):
        with pytest.raises((OverflowError, TypeError, KeyError)):
            rows.add(**(ROW._asdict() | wrong))
