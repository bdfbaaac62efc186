"""The export is what the trace-event format asks for, and nothing of the timeline is lost in it."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_events import events

from lib_dlhpc import SpecError
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import STREAMS, Event, export_chrome, from_rows
from lib_dlhpc.timeline.formats import read, write

ROWS = [
    (0, "compute", "forward", 'a "quoted" ü\n', 0.0, 1.5),
    (0, "communication", "communication", "block", 1.5, 2.0, 4000, 1),
    (1, "communication", "communication", "block", 1.75, 2.5, 4000, 0),
]


@pytest.fixture(params=["rows", "goyal"])
def timeline(request):
    if request.param == "rows":
        return from_rows(ROWS, 2, "simulated")
    return simulate(replay("goyal-2017").experiment.set({"strategy.nodes": 2}), steps=2)


def exported(timeline, folder):
    export_chrome(timeline, folder / "trace.json")

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    text = (folder / "trace.json").read_text(encoding="utf-8")
    return json.loads(text, parse_constant=refuse)


def test_every_event_is_one_of_the_format(timeline, tmp_path):
    """Fields that the format demands for each phase; numbers finite, times not below zero."""
    trace = exported(timeline, tmp_path)
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


def test_no_event_is_lost_and_times_are_microseconds(timeline, tmp_path):
    complete = [e for e in exported(timeline, tmp_path)["traceEvents"] if e["ph"] == "X"]
    rows = sorted(timeline)
    assert len(complete) == len(rows)
    complete.sort(key=lambda e: (e["pid"], STREAMS[e["tid"] % 16], e["cat"], e["name"], e["ts"]))
    for event, row in zip(complete, rows, strict=True):
        assert (event["name"], event["cat"], event["pid"]) == (row.name, row.kind, row.rank)
        assert event["ts"] == pytest.approx(row.start * 1e6)
        assert event["dur"] == pytest.approx((row.stop - row.start) * 1e6)
        assert event.get("args", {}).get("bytes", 0) == row.bytes


@given(st.lists(events(), max_size=30))
def test_what_is_written_comes_back_to_the_bit(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("chrome") / "trace.json.gz"
    write(from_rows(rows, 5, "measured"), path)
    again = read(path)
    assert sorted(again) == sorted(Event(*row) for row in rows)
    assert (again.ranks, again.source) == (5, "measured")


@given(st.lists(events(), max_size=40))
def test_on_one_thread_events_nest(tmp_path_factory, rows):
    """Viewers draw a thread as a stack: what overlaps without nesting would be drawn wrong."""
    trace = exported(from_rows(rows, 5, "measured"), tmp_path_factory.mktemp("chrome"))
    threads = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            span = (event["ts"], event["ts"] + event["dur"])
            threads.setdefault((event["pid"], event["tid"]), []).append(span)
    for spans in threads.values():
        for one, (start, stop) in enumerate(spans):
            for begin, end in spans[:one]:
                apart = end <= start + 1e-3 or stop <= begin + 1e-3
                within = begin <= start + 1e-3 and stop <= end + 1e-3
                around = start <= begin + 1e-3 and end <= stop + 1e-3
                assert apart or within or around


def test_every_rank_and_stream_has_a_name(timeline, tmp_path):
    trace = exported(timeline, tmp_path)["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace if e["name"] == "thread_name"}
    used = {(e["pid"], e["tid"]) for e in trace if e["ph"] == "X"}
    assert used == set(named)
    assert all(name.split()[0] == STREAMS[tid % 16] for (_, tid), name in named.items())
    ranks = {e["pid"]: e["args"]["name"] for e in trace if e["name"] == "process_name"}
    assert ranks == {rank: f"rank {rank}" for rank, _ in used}


def arrows(rows, folder):
    trace = exported(from_rows(rows, 2, "simulated"), folder)["traceEvents"]
    leave = {e["id"]: e for e in trace if e["ph"] == "s"}
    arrive = {e["id"]: e for e in trace if e["ph"] == "f"}
    assert set(leave) == set(arrive)
    return [(leave[number], arrive[number]) for number in sorted(leave)]


def test_a_message_is_an_arrow_that_arrives_where_it_was_sent(tmp_path):
    found = arrows(ROWS, tmp_path)
    assert {(leave["pid"], arrive["pid"]) for leave, arrive in found} == {(0, 1), (1, 0)}
    assert all(leave["ts"] < arrive["ts"] for leave, arrive in found)


@pytest.mark.parametrize("late", [0.0, 0.5, 3.0])
def test_a_send_and_its_receive_are_an_arrow(tmp_path, late):
    """Whether the sender is early, in time or late: from the one call to within the other, not back in time."""
    calls = [
        (0, "communication", "send", "MPI_Send", late, late + 1.0, 8, 1, 0, 7),
        (1, "communication", "receive", "MPI_Recv", 0.25, late + 1.5, 8, 0, 0, 7),
        (0, "communication", "collective", "MPI_Barrier", 8.0, 9.0, 0, -1, 0, 8),
        (1, "communication", "collective", "MPI_Barrier", 8.0, 9.0, 0, -1, 0, 8),
        (1, "communication", "send", "MPI_Send", 9.0, 9.5, 8, 0, 0, 9),
    ]
    ((leave, arrive),) = arrows(calls, tmp_path)
    assert (leave["pid"], arrive["pid"]) == (0, 1)
    assert leave["ts"] == late * 1e6 <= arrive["ts"]
    assert 0.25e6 <= arrive["ts"] < (late + 1.5) * 1e6


def test_a_match_of_more_than_one_message_has_no_arrow(tmp_path):
    call = (1, "communication", "receive", "MPI_Recv", 1.0, 2.0, 8, 0, 0, 7)
    send = (0, "communication", "send", "MPI_Send", 1.0, 2.0, 8, 1, 0, 7)
    assert arrows([send, call, call], tmp_path) == arrows([send, send, call], tmp_path) == []


def test_a_failed_export_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("old")
    endless = from_rows([(0, "compute", "forward", "a", 0.0, np.inf)], 1, "simulated")
    with pytest.raises(SpecError, match=r"trace\.json.*later than"):
        export_chrome(endless, path)
    torn = from_rows([(0, "compute", "forward", "a", 0.0, 1.0)] * 3, 1, "simulated")
    torn.kind[1] = 100
    with pytest.raises(IndexError):
        export_chrome(torn, path)
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def trace_of(*given, about=True, **changed):
    event = {"name": "a", "cat": "region", "ph": "X", "ts": 1, "dur": 2.5, "pid": 0, "tid": 0}
    head = {"otherData": {"source": "measured", "ranks": 2, "streams": list(STREAMS)}}
    return (head if about else {}) | {"traceEvents": [*given, event | changed]}


WRONG = {
    "ts: text": (trace_of(ts="now"), r"event 0: ts = 'now': expected a number of microseconds"),
    "ts: true": (trace_of(ts=True), "event 0: ts = True: expected a number"),
    "ts: huge": (trace_of(ts=10**400), r"event 0: ts = 1\.0*e\+400: too far"),
    "dur: huge": (trace_of(dur=1e300), r"event 0: dur = 1e\+300: too far"),
    "dur: missing": (
        {**trace_of(), "traceEvents": [{"ph": "X", "cat": "region"}]},
        "event 0 has no",
    ),
    "dur: negative": (trace_of(dur=-1), "ends before it starts"),
    "cat": (trace_of(cat="forwards"), r"cat = 'forwards'.*Did you mean 'forward'"),
    "tid": (trace_of(tid=15), "event 0: "),
    "pid: no such rank": (trace_of(pid=2), "no such rank"),
    "pid: huge": (trace_of(pid=2**40), "event 0: rank = 1099511627776: expected a number of 32"),
    "ts: no int64 of ns": (trace_of(ts=4.7e15), r"event 0: ts = 4\.7\d*e\+15: .*to 4\.61e\+15"),
    "end: no int64 of ns": (
        trace_of(ts=4e15, dur=4e15),
        r"stop = 8000000000.0 s; legal: -4\.61e\+09 to 4\.61e\+09 s",
    ),
    "peer: no such rank": (trace_of(args={"peer": 2}), "peer = 2; legal: -1 to 1"),
    "peer: huge": (trace_of(args={"peer": 2**40}), "event 0: peer = 1099511627776: expected a"),
    "bytes: negative": (trace_of(args={"bytes": -1}), "bytes = -1; legal: 0 to"),
    "comm: negative": (trace_of(args={"comm": -1}), "comm = -1; legal: 0 to"),
    "match: negative": (trace_of(args={"match": -2}), "match = -2; legal: -1 to"),
    "ranks: none": (
        {**trace_of(), "otherData": {"ranks": 0, "source": "", "streams": list(STREAMS)}},
        "ranks = 0: legal: from 1 to 1,000,000",
    ),
    "ranks: too many": (
        {**trace_of(), "otherData": {"ranks": 10**8, "source": "", "streams": list(STREAMS)}},
        "ranks = 100000000: legal: from 1",
    ),
    "pid: true": (trace_of(pid=True), "pid = True"),
    "bytes": (trace_of(args={"bytes": 1.5}), r"event 0: bytes = .*expected a whole number"),
    "the second": (trace_of({"ph": "M", "name": "a"}, ts=None), "event 1: ts = None"),
    "not an object": ({**trace_of(), "traceEvents": [1]}, "event 0 is not an object"),
    "no list": ({**trace_of(), "traceEvents": {}}, "no list 'traceEvents'"),
    "no events": ({"a": 1}, "no list 'traceEvents'"),
    "ranks": (
        {**trace_of(), "otherData": {"ranks": "two", "streams": []}},
        "otherData: ranks = 'two'",
    ),
    "another program": (trace_of(about=False), "a trace of another program; expected Chrome's"),
    "a list": ([], "does not begin with"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_trace_is_refused_with_file_and_place(tmp_path, case):
    content, why = WRONG[case]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    with pytest.raises(SpecError, match=why) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_trace_that_ends_in_the_middle_is_refused_wherever_it_is_cut(tmp_path):
    path = tmp_path / "run.json"
    write(from_rows(ROWS, 2, "simulated"), path)
    whole = path.read_bytes().rstrip()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(SpecError, match=r"run\.json: (not a trace .*ends in the middle|empty)"):
            read(path)


def test_packed_text_that_is_cut_or_no_text_is_refused(tmp_path):
    path = tmp_path / "run.json.gz"
    write(from_rows(ROWS, 2, "simulated"), path)
    packed = path.read_bytes()
    for broken in (packed[:-9], packed[:40], b"\x1f\x8b", packed[:30] + b"\0" * 40):
        path.write_bytes(broken)
        with pytest.raises(SpecError, match=r"run\.json\.gz: cannot be read"):
            read(path)
    for text in (b"\xff\xfe\x00", b"hello", b'{"traceEvents":[NaN]}', b"[" * 10**5):
        path.write_bytes(gzip.compress(text))
        with pytest.raises(SpecError, match=r"run\.json\.gz: not a trace"):
            read(path)


def test_what_stands_beside_the_events_may_follow_them(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(dict(reversed(trace_of().items())), indent=2))
    assert list(read(path)) == [Event(0, "compute", "region", "a", 1e-6, 3.5e-6)]
