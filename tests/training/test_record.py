"""Laws of the recorder: its rows are the recorded events, excluded time is removed."""

import pytest

from lib_dlhpc.timeline import breakdown
from lib_dlhpc.training import record
from lib_dlhpc.training.record import Recorder, gather
from lib_dlhpc.training.single_rank import SingleRank


@pytest.fixture
def clock(monkeypatch):
    """The clock of this rank, set by a test: clock[0] is the time."""
    time = [100.0]
    monkeypatch.setattr(record, "perf_counter", lambda: time[0])
    return time


def step(recorder, clock, seconds=1.0):
    """Forward, backward in two segments with a bucket launched after the first, update."""
    marks = [recorder.now()]
    for _ in range(4):
        clock[0] += seconds
        marks.append(recorder.now())
        if len(marks) == 3:
            recorder.begin("bucket 1", 80)
    recorder.end("bucket 1")
    kinds = ("forward", "backward", "backward", "update")
    for kind, start, stop in zip(kinds, marks, marks[1:], strict=False):
        recorder.add(kind, kind, start, stop)


def test_rows_are_the_recorded_events_from_time_zero(clock):
    recorder = Recorder()
    step(recorder, clock)
    table = gather(recorder, SingleRank(), 0.0)
    events = list(table)
    assert [(e.kind, e.start, e.stop) for e in events if e.stream == "compute"] == [
        ("forward", 0, 1),
        ("backward", 1, 2),
        ("backward", 2, 3),
        ("update", 3, 4),
    ]
    (bucket,) = (e for e in events if e.stream == "communication")
    assert (bucket.name, bucket.start, bucket.stop, bucket.bytes) == ("bucket 1", 2, 4, 80)
    assert table.source == "measured" and table.ranks == 1
    assert breakdown(table).terms["backward"] == 2 and breakdown(table).step_time == 4


def test_excluded_time_is_not_recorded(clock):
    recorder = Recorder()
    step(recorder, clock)
    clock[0] += 50
    recorder.leave_out(50)
    step(recorder, clock)
    measured = breakdown(gather(recorder, SingleRank(), 0.0))
    assert measured.steps == 2 and measured.step_time == 4
    assert sum(measured.terms.values()) == pytest.approx(4)


def test_a_recorder_that_is_off_records_nothing(clock):
    recorder = Recorder()
    recorder.on = False
    step(recorder, clock)
    assert not recorder.rows
    assert len(gather(recorder, SingleRank(), 0.0)) == 0


def test_events_without_duration_are_not_recorded(clock):
    recorder = Recorder()
    recorder.add("wait", "wait for the exchange", 1.0, 1.0)
    assert not recorder.rows


def test_work_pauses_while_it_waits_for_other_ranks(clock):
    recorder = Recorder()
    with recorder.working("forward", "forward 1"):
        clock[0] += 1
        with recorder.communicates("halo conv1", 80, 3):
            clock[0] += 2
        clock[0] += 4
    with recorder.communicates("sum", 8):
        clock[0] += 8
    rows = [
        (e.stream, e.kind, e.name, e.start, e.stop) for e in gather(recorder, SingleRank(), 0.0)
    ]
    assert rows == [
        ("compute", "forward", "forward 1", 0, 1),
        ("compute", "wait", "wait for halo conv1", 1, 3),
        ("communication", "communication", "halo conv1", 1, 3),
        ("compute", "forward", "forward 1", 3, 7),
        ("compute", "wait", "wait for sum", 7, 15),
        ("communication", "communication", "sum", 7, 15),
    ]
    assert [(e.bytes, e.peer) for e in gather(recorder, SingleRank(), 0.0) if e.bytes] == [
        (80, 3),
        (8, -1),
    ]
