"""Profiles of XLA become timelines: operations, collectives, steps and input, on one clock."""

import gzip
import json

import pytest

from lib_dlhpc import SpecError
from lib_dlhpc.timeline.formats import read

HOST = {"ph": "M", "pid": 7, "name": "process_name", "args": {"name": "/host:CPU"}}


def x(name, ts, dur, pid=7, tid=1, **args):
    event = {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return event | ({"args": args} if args else {})


def op(name, ts, dur, device="0", **more):
    return x(name, ts, dur, **more, hlo_op=name, hlo_module="jit_step", device_ordinal=device)


def save(folder, name, *events, labels=(HOST,)):
    """Write a profile as XLA does, with an empty event at its end."""
    path = folder / name
    content = {"displayTimeUnit": "ns", "metadata": {}, "traceEvents": [*labels, *events, {}]}
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def rows(table, *fields):
    return [tuple(getattr(event, field) for field in fields) for event in table]


STEP = [
    x("train", 10, 90, step_num="3"),
    x("input", 11, 9),
    x("$contextlib.py:132 __enter__", 12, 1),
    op("dot.5", 20, 30),
    op("broadcast_maximum_fusion", 50, 5),
    op("all-reduce.6", 55, 30),
]
TEXT = "  %all-reduce.6 = f32[10,5]{1,0} all-reduce(%dot.5), channel_id=1\n"


def test_arguments_say_what_an_event_is(tmp_path):
    said = []
    table = read(save(tmp_path, "a.trace.json.gz", *STEP), tell=said.append)
    assert rows(table, "stream", "kind", "name") == [
        ("host", "step", "train 3"),
        ("input", "input", "input"),
        ("compute", "kernel", "dot.5"),
        ("compute", "kernel", "broadcast_maximum_fusion"),
        ("communication", "collective", "allreduce"),
    ]
    assert said == [
        "Sizes of collectives are not known: expected the HLO text of the module (.txt) as well."
    ]
    assert [event.stop - event.start for event in table] == pytest.approx(
        [90e-6, 9e-6, 30e-6, 5e-6, 30e-6]
    )


@pytest.mark.parametrize("given", ["files", "folder"])
def test_the_hlo_text_has_the_sizes(tmp_path, given):
    profile = save(tmp_path, "a.trace.json.gz", *STEP)
    text = tmp_path / "step.hlo.txt"
    text.write_text(TEXT)
    said = []
    table = read(*([profile, text] if given == "files" else [tmp_path]), tell=said.append)
    assert rows(table, "bytes")[-1] == (200,) and said == []


def test_a_device_of_a_process_is_a_rank(tmp_path):
    events = [op("dot", 5, 10, device) for device in ("0", "1")]
    table = read(save(tmp_path, "a.json.gz", x("train", 0, 20, step_num="0"), *events))
    assert table.ranks == 2
    assert rows(table, "rank", "kind") == [(0, "step"), (0, "kernel"), (1, "step"), (1, "kernel")]


def test_of_an_accelerator_only_its_streams_are_read(tmp_path):
    """The rows "XLA Ops" and "XLA Modules" beside them repeat the kernels."""
    names = {1: "Stream #13(Compute)", 2: "XLA Ops", 3: "Stream #20(Collective)"}
    labels = [{**HOST, "args": {"name": "/device:GPU:0"}}]
    labels += [
        {"ph": "M", "pid": 7, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for tid, name in names.items()
    ]
    events = [op("gemm", 0, 5), op("gemm", 0, 5, tid=2), op("all-reduce-start", 5, 5, tid=3)]
    table = read(save(tmp_path, "a.json.gz", *events, labels=labels))
    assert rows(table, "stream", "name") == [("compute", "gemm"), ("communication", "allreduce")]


def test_all_ranks_leave_a_collective_together(tmp_path):
    """Each file counts from its own beginning; here the second began 1 s later, and joins 10 us late."""
    first = save(tmp_path, "0.json.gz", op("all-reduce.6", 1_000_100, 50))
    second = save(tmp_path, "1.json.gz", op("all-reduce.6", 110, 40))
    early, late = read(first, second)
    assert early.match == late.match == 0
    assert late.stop == pytest.approx(early.stop, abs=1e-12)
    assert late.start - early.start == pytest.approx(10e-6)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([x("main", 0, 1)], "no operation of XLA or of TensorFlow in it"),
        ([op("dot", "soon", 1)], r"event 1: ts = 'soon': expected a number of microseconds"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, events, says):
    with pytest.raises(SpecError, match=says):
        read(save(tmp_path, "a.json.gz", *events))


def test_hlo_text_is_of_profiles_of_xla_alone(tmp_path):
    text = tmp_path / "step.txt"
    text.write_text(TEXT)
    other = tmp_path / "a.json"
    other.write_text('{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(SpecError, match=r"step\.txt: HLO text; expected profiles of XLA"):
        read(other, text)
