"""The bubble of a real pipeline: idle time of its own passes; the rest is communication."""

import numpy as np
import pytest

from lib_dlhpc import layout
from lib_dlhpc.schedules.pipelines import PIPELINES
from lib_dlhpc.simulation.pipeline import simulate_pipeline
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Device, Link, Machine
from lib_dlhpc.timeline import Event, breakdown, from_rows
from lib_dlhpc.training.bubble import with_bubble

DEVICE = Device({"fp32": 1e13}, 1e10, 9e11, 100.0, 300.0)


def experiment(pipeline, chunks, microbatches, schedule="1f1b"):
    return Experiment(
        model={
            "family": "sequential",
            "input": [8],
            "layers": [{"kind": "dense", "features": 8}] * 8,
        },
        dataset="digits",
        machine={"name": "laptop", "devices_per_node": 8},
        strategy={
            "devices_per_node": pipeline,
            "pipeline": pipeline,
            "chunks": chunks,
            "microbatches": microbatches,
            "schedule": "interleaved" if chunks > 1 else schedule,
        },
    )


def as_recorded(timeline, steps):
    """The rows that a real run records: undistinguished waits, an update at the end."""
    rows, long = [], float(timeline.stop.max()) + 1.0
    for step in range(steps):
        for event in timeline:
            kind = "wait" if event.kind == "bubble" else event.kind
            at = step * long
            moved = event._replace(kind=kind, start=event.start + at, stop=event.stop + at)
            rows.append(moved)
        for rank in range(timeline.ranks):
            end = step * long + float(timeline.stop.max())
            rows.append(Event(rank, "compute", "update", "update", end, end + 1.0))
    return from_rows(rows, timeline.ranks, "measured").sorted()


@pytest.mark.parametrize(("p", "v", "m"), [(2, 1, 3), (4, 1, 4), (2, 2, 4)])
@pytest.mark.parametrize("latency", [0.0, 0.3])
def test_a_measured_pipeline_has_the_bubble_of_its_passes(p, v, m, latency):
    run = experiment(p, v, m)
    name = "interleaved" if v > 1 else "1f1b"
    pipeline = PIPELINES[name](p, m, v) if v > 1 else PIPELINES[name](p, m)
    link = Link(latency, 1e30)
    machine = Machine(DEVICE, link, link, nodes=p)
    simulated = simulate_pipeline(pipeline, machine, p, 1, 1.0, 2.0)
    late = simulate_pipeline(pipeline, machine, p, 1, 1.0, 2.0, 1.0)
    found = breakdown(with_bubble(run, pipeline, as_recorded(late, steps=3)))
    assert layout.group(run, 0, "pipeline") == tuple(range(p))
    np.testing.assert_allclose(found.per_rank["pipeline bubble"], (p - 1) * 3.0, rtol=1e-9)
    exposed = found.step_time - 1.0 - m * v * 3.0 - (p - 1) * 3.0
    np.testing.assert_allclose(found.per_rank["exposed communication"], exposed, atol=1e-9)
    assert (exposed > 0.1) == (latency > 0)
    assert breakdown(simulated).terms["pipeline bubble"] == pytest.approx((p - 1) * 3.0)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_bubble_is_that_of_passes_in_two_parts(share):
    """Weight gradients that take share of 2 s: a bubble of (p - 1)(F + B - W)."""
    run, pipeline = experiment(4, 1, 6, "zb-h1"), PIPELINES["zb-h1"](4, 6)
    machine = Machine(DEVICE, Link(0.0, 1e30), Link(0.0, 1e30), nodes=4)
    timeline = simulate_pipeline(pipeline, machine, 4, 1, 1.0, 2.0, weights=share)
    found = breakdown(with_bubble(run, pipeline, as_recorded(timeline, steps=2)))
    np.testing.assert_allclose(
        found.per_rank["pipeline bubble"], 3 * (3.0 - 4.0 * share), rtol=1e-9
    )


def test_one_stage_has_no_bubble():
    run = experiment(1, 1, 2)
    pipeline = PIPELINES["1f1b"](1, 2)
    rows = [Event(0, "compute", "forward", "forward 0", 0.0, 1.0)]
    table = from_rows(rows, 1, "measured")
    assert with_bubble(run, pipeline, table) is table
