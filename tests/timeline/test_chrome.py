"""The export is what the trace-event format asks for, and nothing of the timeline is lost in it."""

import json

import pytest

from lib_dlhpc.predict.replays import replay
from lib_dlhpc.simulate import simulate
from lib_dlhpc.timeline import STREAMS, export_chrome, from_rows, trace_events

ROWS = [
    (0, "compute", "forward", 'a "quoted" ü', 0.0, 1.5),
    (0, "communication", "communication", "block", 1.5, 2.0, 4000, 1),
    (1, "communication", "communication", "block", 1.75, 2.5, 4000, 0),
]


@pytest.fixture(params=["rows", "goyal"])
def timeline(request):
    if request.param == "rows":
        return from_rows(ROWS, 2, "simulated")
    return simulate(replay("goyal-2017").experiment.set({"strategy.nodes": 2}), steps=2)


def test_every_event_is_one_of_the_format(timeline, tmp_path):
    """Fields that the format demands for each phase; numbers finite, times not below zero."""
    path = tmp_path / "trace.json"
    export_chrome(timeline, path)

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    trace = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is type(event["tid"]) is int
        assert event["ph"] in "XMsf"
        if event["ph"] == "M":
            assert event["args"].keys() <= {"name", "sort_index"}
            continue
        assert isinstance(event["cat"], str) and event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        else:
            assert "id" in event and (event["ph"] == "s" or event["bp"] == "e")
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]


def test_no_event_is_lost_and_times_are_microseconds(timeline):
    complete = [e for e in trace_events(timeline)["traceEvents"] if e["ph"] == "X"]
    rows = list(timeline.sorted())
    assert len(complete) == len(rows)
    for event, row in zip(complete, rows, strict=True):
        assert (event["name"], event["cat"], event["pid"]) == (row.name, row.kind, row.rank)
        assert STREAMS[event["tid"]] == row.stream
        assert event["ts"] == pytest.approx(row.start * 1e6)
        assert event["dur"] == pytest.approx((row.stop - row.start) * 1e6)
        assert event.get("args", {}).get("bytes", 0) == row.bytes


def test_every_rank_and_stream_has_a_name(timeline):
    events = trace_events(timeline)["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    assert used == set(named)
    ranks = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert ranks == {rank: f"rank {rank}" for rank, _ in used}


def test_a_message_is_an_arrow_that_arrives_where_it_was_sent():
    events = trace_events(from_rows(ROWS, 2, "simulated"))["traceEvents"]
    leave = {e["id"]: e for e in events if e["ph"] == "s"}
    arrive = {e["id"]: e for e in events if e["ph"] == "f"}
    assert set(leave) == set(arrive) and len(leave) == 2
    assert {(leave[i]["pid"], arrive[i]["pid"]) for i in leave} == {(0, 1), (1, 0)}
    assert all(leave[i]["ts"] < arrive[i]["ts"] for i in leave)


def test_a_failed_export_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text("old")

    def fail(*arguments, **options):
        raise OSError("disk full")

    monkeypatch.setattr(json, "dump", fail)
    with pytest.raises(OSError, match="disk full"):
        export_chrome(from_rows(ROWS, 2, "simulated"), path)
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1
