"""Pipelines on a machine: the papers' bubbles where messages are free, alpha and beta where they are not."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.schedules import pipeline_proof
from lib_dlhpc.schedules.pipeline import Backward, Forward, Pipeline, Receive, Send, WeightGradients
from lib_dlhpc.schedules.pipelines import gpipe, interleaved, one_f_one_b, zb_h1
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.pipeline import kept, simulate_pipeline
from lib_dlhpc.simulation.simulation import Traffic
from lib_dlhpc.simulation.watchdog import Cancelled, DeadlockError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Device, Link, Machine
from lib_dlhpc.timeline import breakdown, critical_path, export_chrome, idle, span
from lib_dlhpc.timeline.table import COLUMNS

DEVICE = Device({"fp32": 1e13}, 1e10, 9e11, 100.0, 300.0)
ranks, microbatches, chunks = st.integers(1, 8), st.integers(1, 16), st.integers(1, 4)
seconds = st.floats(0.1, 10)


def machine(latency=0.0, bandwidth=1e30, **options):
    link = Link(latency, bandwidth)
    return Machine(DEVICE, link, link, nodes=64, devices_per_node=8, **options)


def work(timeline):
    rows = timeline.where("compute", "forward", "backward")
    return np.bincount(timeline.rank[rows], (timeline.stop - timeline.start)[rows])


# --- messages are free ---


@settings(max_examples=40)
@given(ranks, microbatches, seconds, seconds)
def test_gpipe_and_1f1b_take_m_plus_p_minus_1_turns(p, m, f, b):
    for make in (gpipe, one_f_one_b):
        timeline = simulate_pipeline(make(p, m), machine(), p, 1, f, b)
        assert span(timeline) == pytest.approx((m + p - 1) * (f + b), rel=1e-9)
        np.testing.assert_allclose(idle(timeline) / work(timeline), (p - 1) / m, atol=1e-9)


@settings(max_examples=40)
@given(ranks, st.integers(1, 4), chunks, seconds, seconds)
def test_chunks_divide_the_bubble(p, groups, v, f, b):
    """f and b of all chunks of a rank; the bubble is (p - 1) (f + b) / v."""
    m = groups * p
    timeline = simulate_pipeline(interleaved(p, m, v), machine(), p, 1, f / v, b / v)
    np.testing.assert_allclose(idle(timeline), (p - 1) / v * (f + b), atol=1e-9 * m * (f + b))
    assert span(timeline) == pytest.approx((m + (p - 1) / v) * (f + b), rel=1e-9)


@settings(max_examples=40)
@given(st.sampled_from([gpipe, one_f_one_b]), st.integers(2, 8), microbatches, seconds, seconds)
def test_free_messages_leave_nothing_exposed(make, p, m, f, b):
    terms = breakdown(simulate_pipeline(make(p, m), machine(), p, 1, f, b)).terms
    assert terms["pipeline bubble"] == pytest.approx((p - 1) * (f + b), rel=1e-9)
    assert terms["exposed communication"] == pytest.approx(0, abs=1e-9 * m * p * (f + b))
    assert terms["waiting for the slowest"] == 0


@settings(max_examples=40)
@given(st.sampled_from([gpipe, one_f_one_b]), st.integers(2, 8), microbatches, st.floats(0, 0.5))
def test_what_messages_add_is_exposed_and_the_bubble_stays(make, p, m, transfer):
    """Whatever messages cost, the bubble is the paper's; all that the step is longer by is exposed."""
    timeline = simulate_pipeline(make(p, m), machine(0.0, 1e9), p, 1, 1.0, 2.0, transfer * 1e9)
    found = breakdown(timeline)
    for rank in range(p):
        assert found.per_rank["pipeline bubble"][rank] == pytest.approx((p - 1) * 3.0, rel=1e-9)
        late = found.step_time - (m + p - 1) * 3.0
        assert found.per_rank["exposed communication"][rank] == pytest.approx(late, abs=1e-8)
    assert sum(found.terms.values()) == pytest.approx(found.step_time)


def test_unequal_stages_have_the_bubble_of_their_timetable():
    """Who computes less has his turn later: nobody waits for the slowest beside the bubble."""
    forward = [1.0, 3.0, 2.0]
    timeline = simulate_pipeline(one_f_one_b(3, 5), machine(), 3, 1, forward, forward)
    spans = pipeline_proof.timetable(one_f_one_b(3, 5), forward, forward)
    total = max(span.stop for span in spans)
    found = breakdown(timeline)
    assert found.step_time == pytest.approx(total)
    expected = total - 10 * np.array(forward)
    np.testing.assert_allclose(found.per_rank["pipeline bubble"], expected)


@settings(max_examples=40)
@given(st.sampled_from([gpipe, one_f_one_b, zb_h1]), ranks, microbatches, seconds, seconds)
def test_it_does_what_its_timetable_says(make, p, m, f, b):
    pipeline = make(p, m)
    timeline = simulate_pipeline(pipeline, machine(0.3), p, 1, f, b)
    spans = pipeline_proof.timetable(pipeline, f, b, 0.3)
    backward = {Backward: "backward", WeightGradients: "weight gradients"}
    for kind, words in (("forward", {Forward: "forward"}), ("backward", backward)):
        found = timeline.select(timeline.where("compute", kind))
        expected = sorted(
            (s.rank, s.start, s.stop, f"{words[type(s.instruction)]} {s.instruction.microbatch}")
            for s in spans
            if type(s.instruction) in words
        )
        assert [row.name for row in found] == [row[3] for row in expected]
        np.testing.assert_allclose(found.start, [row[1] for row in expected], atol=1e-9)
        np.testing.assert_allclose(found.stop, [row[2] for row in expected], atol=1e-9)


@given(ranks, microbatches)
def test_1f1b_keeps_a_few_activations_and_gpipe_all(p, m):
    assert kept(simulate_pipeline(gpipe(p, m), machine(), p, 1, 1.0, 2.0)).tolist() == [m] * p
    few = kept(simulate_pipeline(one_f_one_b(p, m), machine(), p, 1, 1.0, 2.0)).tolist()
    assert few == [min(m, p - rank) for rank in range(p)]
    apart = kept(simulate_pipeline(zb_h1(p, m), machine(), p, 1, 1.0, 2.0)).tolist()
    assert apart == [min(m, p)] * p


@settings(max_examples=20)
@given(ranks, st.integers(1, 3), chunks)
def test_what_interleaving_keeps_is_what_its_streams_say(p, groups, v):
    pipeline = interleaved(p, groups * p, v)
    timeline = simulate_pipeline(pipeline, machine(1e-3), p, 1, 1.0, 2.0)
    assert kept(timeline).tolist() == pipeline_proof.stored_chunks(pipeline)


def test_the_slowest_stage_sets_the_pace():
    """Stage 2 of 4 takes 3 s: with many microbatches the others only wait for it."""
    forward = np.array([1.0, 1.0, 3.0, 1.0])
    timeline = simulate_pipeline(gpipe(4, 20), machine(), 4, 1, forward, forward)
    assert span(timeline) == pytest.approx(2 * (forward.sum() + 19 * 3.0))
    slow = simulate_pipeline(
        gpipe(4, 20), machine(), 4, 1, 1.0, 1.0, speed=1 / np.array([1.0, 1.0, 3.0, 1.0])
    )
    np.testing.assert_allclose(slow.stop, timeline.stop)


# --- messages take time ---


@settings(max_examples=40)
@given(ranks, microbatches, st.floats(0, 0.5), st.floats(0, 0.5))
def test_gpipe_pays_for_a_message_a_boundary_and_way(p, m, alpha, transfer):
    """Later messages hide behind the compute of the microbatch after: 2 (p - 1) are on the path."""
    timeline = simulate_pipeline(
        gpipe(p, m), machine(alpha, 1e9), p, 1, 1.0, 2.0, transfer * 1e9, messages=10**6
    )
    expected = (m + p - 1) * 3.0 + 2 * (p - 1) * (alpha + transfer)
    assert span(timeline) == pytest.approx(expected, rel=1e-9)
    sent = timeline.select(timeline.peer >= 0)
    assert len(sent) == 2 * m * (p - 1) and (abs(sent.rank - sent.peer) == 1).all()
    np.testing.assert_allclose(sent.stop - sent.start, alpha + transfer, atol=1e-9)
    assert (sent.bytes == round(transfer * 1e9)).all()


def test_each_boundary_has_its_size():
    """Activations of 1, 2 and 3 GB over 1 GB/s, and gradients as large: 12 s for one microbatch."""
    timeline = simulate_pipeline(
        gpipe(4, 1), machine(0.0, 1e9), 4, 1, 1.0, 1.0, [1e9, 2e9, 3e9], messages=100
    )
    assert span(timeline) == pytest.approx(8 + 12)
    sizes = {(row.name, row.rank, row.peer): row.bytes for row in timeline if row.peer >= 0}
    assert sizes[("activation 0", 2, 3)] == sizes[("gradient 0", 3, 2)] == 3e9
    assert sizes[("activation 0", 0, 1)] == sizes[("gradient 0", 1, 0)] == 1e9


def test_messages_of_a_rank_share_its_port_and_others_traffic_the_link():
    """2 GB to each of two ranks at once over 1 GB/s: 4 s; with an endless flow beside them 6 s."""
    send = tuple(Send("activation", 0, 0, peer) for peer in (1, 2))
    receive = (Receive("activation", 0, 0, 0),)
    fork = Pipeline("fork", 3, 1, 1, (send, receive, receive))
    for others, expected in (([], 4.0), ([Traffic(0, 1, np.inf)], 6.0)):
        timeline = simulate_pipeline(
            fork, machine(0.0, 1e9), 3, 1, 1.0, 1.0, 2e9, background=others
        )
        assert timeline.stop.max() == pytest.approx(expected)


def test_the_timeline_holds_together(tmp_path):
    """A rank does one thing at a time without a gap, from the first event to the last; arrows for messages."""
    timeline = simulate_pipeline(
        interleaved(3, 6, 2), machine(0.1, 1e9), 3, 1, 1.0, 2.0, 0.4e9, messages=7
    )
    for rank in range(3):
        mine = timeline.select(timeline.where("compute") & (timeline.rank == rank))
        assert mine.start[0] == 0 and mine.stop[-1] == span(timeline)
        np.testing.assert_allclose(mine.start[1:], mine.stop[:-1], atol=1e-12)
    names = set(timeline.names)
    assert {"forward 0, chunk 1", "backward 5, chunk 0", "wait for activation 0"} <= names
    export_chrome(timeline, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    arrows = [event for event in events if event["ph"] == "s"]
    assert len(arrows) == 7
    path = critical_path(timeline)
    assert len(path) and path.stop[-1] <= span(timeline)


def test_the_same_pipeline_gives_the_same_bytes():
    first, second = (
        simulate_pipeline(one_f_one_b(4, 9), machine(1e-3, 1e9), 2, 2, 1.0, 2.0, 1e8, messages=50)
        for _ in range(2)
    )
    for column in COLUMNS:
        assert getattr(first, column).tobytes() == getattr(second, column).tobytes()


# --- what cannot be ---


def changed(pipeline, rank, change):
    streams = list(pipeline.streams)
    streams[rank] = tuple(change(list(streams[rank])))
    return replace(pipeline, streams=tuple(streams))


def test_a_message_that_is_never_sent_is_named_by_who_waits_for_it():
    lost = Send("activation", 1, 0, 1)
    wrong = changed(gpipe(3, 2), 0, lambda stream: [step for step in stream if step != lost])
    with pytest.raises(DeadlockError) as caught:
        simulate_pipeline(wrong, machine(), 3, 1, 1.0, 1.0)
    text = str(caught.value)
    assert "rank 1, receiving the activation of microbatch 1 from stage 0, waits for rank 0" in text
    assert "rank 2, receiving the activation of microbatch 1 from stage 1, waits for rank 1" in text


def test_ranks_that_each_receive_first_are_a_circle():
    streams = tuple(
        (Receive("activation", 0, 1 - rank, 1 - rank), Send("activation", 0, rank, 1 - rank))
        for rank in range(2)
    )
    wrong = replace(gpipe(2, 1), streams=streams)
    with pytest.raises(DeadlockError, match="0 -> 1 -> 0"):
        simulate_pipeline(wrong, machine(), 2, 1, 1.0, 1.0)


def test_progress_may_cancel():
    with pytest.raises(Cancelled):
        simulate_pipeline(
            gpipe(8, 200), machine(1e-3), 8, 1, 1.0, 1.0, progress=lambda time, n: False
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nodes": 3}, "3 nodes x 1 devices: 3 ranks, but the pipeline gpipe is for 4"),
        ({"forward": [1.0, 2.0]}, "forward: shape .2,.; expected one number, or 4"),
        ({"message_bytes": [1.0] * 4}, "message_bytes: shape .4,.; expected one number, or 3"),
        ({"backward": -1.0}, "backward = -1: expected a number, 0 or more"),
        ({"speed": 0.0}, "speed = 0"),
    ],
)
def test_what_does_not_fit_is_reported(arguments, words):
    given = {"nodes": 4, "devices_per_node": 1, "forward": 1.0, "backward": 1.0} | arguments
    with pytest.raises(SpecError, match=words):
        simulate_pipeline(gpipe(4, 2), machine(), **given)


BOTH_ENDS = {"schedule": "dualpipe"}  # copies of a stage sum their gradients
SPINE = {"nodes_per_switch": 2, "oversubscription": 8.0}


@pytest.mark.parametrize(
    ("machine", "split"),
    [
        ({"name": "h100-pod", "nics": 2, **SPINE}, {"nodes": 4, "pipeline": 2}),
        ({"name": "h100-pod", "nics": 2, **SPINE}, {"nodes": 4, "pipeline": 2, "tensor": 2}),
        ({"name": "h100-pod", "nics": 2, **SPINE}, {"nodes": 4, "pipeline": 4}),
        ({"name": "h100-pod", "nics": 2, **SPINE}, {"nodes": 4, "pipeline": 2, **BOTH_ENDS}),
        ({"name": "tpu-v3-pod"}, {"nodes": 8, "pipeline": 2}),
        ({"name": "tpu-v3-pod"}, {"nodes": 8, "pipeline": 4}),
    ],
    ids=str,
)
def test_stages_behind_different_switches_share_uplinks_as_predicted(machine, split):
    machine = {**machine, "devices_per_node": 2, "jitter": 0.0}
    options = {"precision": "bf16", "microbatches": 4, "batch": 4, **split}
    run = Experiment(model="opt-125m", machine=machine, strategy=options)
    simulated = sum(breakdown(simulate(run, "events")).terms.values())
    assert simulated == pytest.approx(float(predict(run).step_time), rel=0.01)
