"""Profiles of TensorFlow: what two workers recorded is found again; the host's helpers and functions are left out."""

import gzip
import json

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.errors import SpecError
from lib_dlhpc.timeline.formats import read
from lib_dlhpc.timeline.steps import step_terms
from lib_dlhpc.timeline.steps.report import as_dict

HOST = {1: "python", 2: "tf_Compute/1", 3: "tf_data_private_threadpool/1"}


@pytest.fixture
def folder(repository):
    return repository / "tests/data/frameworks/tensorflow"


def recorded(path):
    """The complete events of a file."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def op(name, kind, ts=0, dur=5, tid=2):
    return x(kind, ts, dur, tid, long_name=f"{name}:{kind}")


def x(name, ts, dur, tid=1, pid=7, **args):
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def save(path, *events, device=()):
    """Write a profile with the threads of HOST, and the rows of a device."""
    named = {7: ("/host:CPU", HOST), 8: ("/device:GPU:0", dict(device))}
    labels = []
    for pid, (process, threads) in named.items():
        labels.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process}})
        labels += [
            {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
            for tid, name in threads.items()
        ]
    path.write_text(json.dumps({"traceEvents": [*labels, *events]}))
    return read(path)


def rows(table):
    return [(event.stream, event.kind, event.name) for event in table]


def test_the_recorded_profile_is_read_whole(folder):
    table = read(folder)
    assert table.ranks == 2
    steps = table.select(table.where("host", "step") & (table.rank == 0))
    assert [event.name for event in steps] == [f"train {number}" for number in range(6)]
    for rank, file in enumerate(sorted(folder.iterdir())):
        own, events = table.select(table.rank == rank), recorded(file)
        for stream, kind, name in (
            ("communication", "collective", "CollectiveReduceV2"),
            ("input", "input", "IteratorGetNextOp::DoCompute"),
        ):
            chosen, there = (
                own.select(own.where(stream, kind)),
                [e for e in events if e["name"] == name],
            )
            assert len(chosen) == len(there) == 6
            took = (chosen.stop - chosen.start).sum()
            assert took == pytest.approx(sum(e["dur"] for e in there) / 1e6, abs=1e-8)
        products = [event for event in own if event.name == "_MklMatMul"]
        assert len(products) == 6 * 5  # three layers backward, but for the gradient of the input


def test_a_batch_that_is_waited_for_has_its_bytes(folder):
    table = read(folder)
    size = table.bytes[table.where("input", "input")]
    assert set(size.tolist()) == {64 * (784 * 4 + 8)}


def test_steps_are_those_of_the_other_frameworks(folder, capsys):
    found = as_dict(step_terms(read(folder)))
    assert found["steps"] == 6 and found["found"] == "annotations"
    assert 0 < found["terms"]["input wait"] < found["step"]
    assert sum(found["terms"].values()) == pytest.approx(found["step"])
    assert main(["trace", "steps", str(folder), str(folder.parent / "jax")]) == 0
    output = capsys.readouterr()
    assert "not in the trace" in output.out
    assert "Profiles of TensorFlow have no sizes of collectives." in output.err


def test_functions_and_what_tf_data_does_ahead_are_left_out(tmp_path):
    table = save(
        tmp_path / "a.trace.json",
        op("a", "MatMul"),
        op("a", "StatefulPartitionedCall", 10),
        op("b", "Mul", 20, tid=3),
        x("Iterator::Map", 30, 5, 1, long_name="Iterator::Root::Map"),
        x("EagerExecute", 40, 5),
        op("gradients", "HorovodAllreduce", 50),
        op("c", "GatherV2", 60),
        op("d", "BroadcastTo", 70),
    )
    assert rows(table) == [
        ("compute", "kernel", "MatMul"),
        ("communication", "collective", "allreduce"),
        ("compute", "kernel", "GatherV2"),
        ("compute", "kernel", "BroadcastTo"),
    ]


def test_of_a_device_its_streams_are_read_and_the_host_s_operations_are_not(tmp_path):
    table = save(
        tmp_path / "a.trace.json",
        op("a", "MatMul"),
        x("ampere_sgemm", 2, 5, 13, 8),
        x("a/MatMul", 2, 5, 14, 8, long_name="a:MatMul"),
        x("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", 8, 5, 15, 8),
        x("train 0", 0, 20, step_num="0"),
        device={13: "Stream #13(Compute)", 14: "TensorFlow Ops", 15: "Stream #15"}.items(),
    )
    assert rows(table) == [
        ("host", "step", "train 0"),
        ("compute", "kernel", "ampere_sgemm"),
        ("communication", "collective", "allreduce"),
    ]


def test_a_profile_that_is_not_converted_is_answered_with_what_converts_it(tmp_path):
    (tmp_path / "host.xplane.pb").write_bytes(b"")
    with pytest.raises(SpecError, match=r"xprof turns such profiles into trace\.json\.gz"):
        read(tmp_path / "host.xplane.pb")
