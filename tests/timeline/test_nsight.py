"""Exports of Nsight Systems become timelines; the files are made after its schema reference."""

import sqlite3

import pytest

from lib_dlhpc import SpecError
from lib_dlhpc.timeline.formats import read
from lib_dlhpc.timeline.steps import step_terms

KERNELS = "start INT, end INT, deviceId INT, streamId INT, globalPid INT, shortName INT"
COPIES = "start INT, end INT, deviceId INT, streamId INT, globalPid INT, copyKind INT, bytes INT"
RANGES = "start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT"
NAMES = ["gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "iteration: 2"]
PID = 77 << 24


def export(path, kernels, copies=(), ranges=()):
    """kernels: start, end, device, name; copies: start, end, kind; ranges: start, end, text, number of a text."""
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    base.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(NAMES))
    base.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({KERNELS})")
    rows = [(a, b, device, 7, PID, NAMES.index(name)) for a, b, device, name in kernels]
    base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?)", rows)
    if copies:
        base.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({COPIES})")
        rows = [(a, b, 0, 7, PID, kind, 100) for a, b, kind in copies]
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?)", rows
        )
    if ranges:
        base.execute(f"CREATE TABLE NVTX_EVENTS ({RANGES})")
        rows = [(a, b, 59, text, PID + 5, number) for a, b, text, number in ranges]
        base.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", rows)
    base.commit()
    base.close()
    return path


STEP = [(1000, 4000, 0, "gemm"), (3000, 6000, 0, NAMES[1])]


def test_tables_say_what_an_event_is(tmp_path):
    ranges = [(1000, 9000, "step 1", None), (9000, 9500, None, 2), (1000, 1100, "forward", None)]
    copies = [(6000, 7000, 1), (7000, 8000, 8)]
    said = []
    path = export(tmp_path / "a.sqlite", STEP, copies, [*ranges, (9600, None, "step 9", None)])
    table = read(path, tell=said.append)
    assert [(event.stream, event.kind, event.name) for event in table] == [
        ("compute", "kernel", "gemm"),
        ("host", "step", "step 1"),
        ("communication", "collective", "allreduce"),
        ("input", "region", "copy"),
        ("compute", "kernel", "copy"),
        ("host", "step", "iteration: 2"),
    ]
    assert said == ["Nsight Systems exports no sizes of collectives."]
    found = step_terms(table)
    assert found.terms["compute"][0] == pytest.approx([4e-6, 0])
    assert found.terms["exposed communication"][0, 0] == pytest.approx(2e-6)
    assert found.terms["input wait"][0, 0] == pytest.approx(1e-6)


def test_a_device_is_a_rank_and_a_file_has_a_clock_of_its_own(tmp_path):
    """The other node's clock is 1 s ahead: the allreduces end together nevertheless."""
    both = [*STEP, *((a, b, 1, name) for a, b, _, name in STEP)]
    export(tmp_path / "node0.sqlite", both)
    export(tmp_path / "node1.sqlite", [(a + 10**9, b + 10**9, c, name) for a, b, c, name in both])
    table = read(tmp_path)
    assert table.ranks == 4
    talk = table.select(table.where("communication"))
    assert set(talk.match.tolist()) == {0} and talk.rank.tolist() == [0, 1, 2, 3]
    assert talk.stop.tolist() == pytest.approx([5e-6] * 4)


def test_what_is_no_export_is_named(tmp_path):
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"not a data base" * 100)
    with pytest.raises(SpecError, match=r"a\.sqlite: cannot be read as an export of Nsight"):
        read(path)
    empty = tmp_path / "b.sqlite"
    export(empty, [])
    with pytest.raises(SpecError, match=r"b\.sqlite: no kernel in it"):
        read(empty)
