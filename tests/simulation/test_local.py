"""Laws of local updates: one step a round is a synchronous step; fewer meetings, less exchange and waiting."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc import Experiment
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.spec.strategy import ALLREDUCES
from lib_dlhpc.timeline import breakdown, span

RUN = Experiment(
    model="resnet18",
    dataset={"samples": 1_000_000, "bytes": "100 GB", "files": 1_000_000},
    machine={
        "name": "summit",
        "topology": "single-switch",
        "jitter": 0.0,
        "storage": {"fast": {"scope": "node", "bandwidth": "2 GB/s", "write_bandwidth": "1 GB/s"}},
    },
    strategy={"nodes": 3, "bucket": "10 MB", "update": "local"},
)
PLAIN = {"strategy.devices_per_node": 1}  # where predict's parameter server is that of the schedule


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize("allreduce", ALLREDUCES)
def test_averaging_every_step_is_a_synchronous_step_without_overlap(fidelity, allreduce):
    run = RUN.set({"strategy.allreduce": allreduce})
    local = simulate(run, fidelity, steps=2)
    step = run.set({"strategy.update": "synchronous", "strategy.overlap": False})
    together = simulate(step, fidelity, steps=2)
    assert span(local) == pytest.approx(span(together), rel=1e-9)
    terms, expected = measure(run, local).terms, breakdown(together).terms
    assert terms == pytest.approx(expected, rel=1e-9, abs=1e-9 * span(together))


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize("allreduce", ALLREDUCES)
@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("late", ["always", "without exchange", "never"])
def test_without_jitter_it_is_as_predicted(fidelity, allreduce, every, late):
    """A batch that comes after the compute of a step may still come before the end of the exchange."""
    run = RUN.set({"strategy.allreduce": allreduce, "strategy.local_steps": every, **PLAIN})
    free = predict(run)
    whole = {"always": 2.0, "without exchange": 0.5, "never": -0.5}[late]
    fetch = free.compute + whole * every * free.exposed_communication
    operations = 3 * run.strategy.batch / fetch  # stat, open and close a sample
    run = run.set({"storage.tier": "fast", "machine.storage.fast.metadata_rate": operations})
    found, expected = measure(run, simulate(run, fidelity, steps=2 * every)), predict(run)
    assert (found.terms["input stall"] > 0) == (late == "always" or (late[0] == "w" and every > 1))
    for name, seconds in expected.terms.items():
        assert found.terms[name] == pytest.approx(float(seconds), rel=1e-9, abs=1e-12)


def test_steps_are_rounded_up_to_whole_rounds():
    run = RUN.set({"strategy.local_steps": 4})
    for asked, played in ((1, 4), (4, 4), (5, 8)):
        assert measure(run, simulate(run, steps=asked)).steps == played


@pytest.mark.parametrize("every", [4, 16])
def test_fewer_meetings_divide_the_exchange_and_the_waiting_by_its_root(every):
    run = RUN.set({"machine.jitter": 0.05, "strategy.nodes": 8})
    one = measure(run, simulate(run, steps=160)).terms
    long = run.set({"strategy.local_steps": every})
    some = measure(long, simulate(long, steps=160 * every)).terms
    name = "waiting for the slowest"
    assert some[name] == pytest.approx(one[name] / np.sqrt(every), rel=0.1)
    exchange = one["exposed communication"] / every
    assert some["exposed communication"] == pytest.approx(exchange, rel=1e-3)
    assert some[name] == pytest.approx(float(predict(long).straggler_wait), rel=0.1)


@settings(max_examples=25)
@given(
    jitter=st.floats(0, 0.5),
    every=st.integers(1, 4),
    seed=st.integers(0, 99),
    tier=st.sampled_from(["", "fast"]),
    fidelity=st.sampled_from(["rounds", "events"]),
    saving=st.sampled_from([0.0, 0.1]),
)
def test_the_timeline_obeys_cause_and_effect(jitter, every, seed, tier, fidelity, saving):
    run = RUN.set(
        {
            "machine.jitter": jitter,
            "strategy.local_steps": every,
            "storage.tier": tier,
            "machine.storage.fast.metadata_rate": "10 kop/s",
            "strategy.devices_per_node": 2,
        }
    )
    timeline = simulate(run, fidelity, seed, 2 * every, checkpoint=lambda step: saving * (step % 2))
    close = 1e-12 * span(timeline)
    for rank in range(timeline.ranks):
        for stream in ("compute", "communication", "input", "checkpoint"):
            mine = timeline.select(timeline.where(stream) & (timeline.rank == rank))
            mine = mine.select(mine.stop > mine.start)  # a draw of jitter may leave a rank no work
            assert (mine.start[1:] >= mine.stop[:-1] - close).all()
    sent = timeline.select(timeline.where("communication"))
    whole = sent.bytes.reshape(timeline.ranks, -1).sum(axis=1)
    assert (whole == 2 * 4 * run.model.parameters).all()  # once a round
    updates = timeline.select(timeline.where("compute", "update")).stop
    ends = updates.reshape(timeline.ranks, 2, every)[:, :, -1]
    joins = sent.start.reshape(timeline.ranks, 2, -1)
    assert (joins[:, :, 0] >= ends - close).all()  # weights, after the last update
    found = measure(run, timeline)
    np.testing.assert_allclose(sum(found.per_rank.values()), found.step_time, rtol=1e-9)
    assert all((seconds >= 0).all() for seconds in found.per_rank.values())


def test_a_slow_rank_holds_up_the_average():
    speed = np.array([1.0, 1.0, 0.5])
    run = RUN.set({**PLAIN, "strategy.local_steps": 8, "strategy.batch": 256})
    assert span(simulate(run, steps=16, speed=speed)) > 1.9 * span(simulate(run, steps=16))
