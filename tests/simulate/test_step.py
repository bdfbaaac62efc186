"""Laws of a simulated step: predict's terms without jitter, physics with it, the same bytes for a seed."""

import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc import SpecError, loads
from lib_dlhpc.costs.network import network_of
from lib_dlhpc.predict import predict
from lib_dlhpc.predict.replays import replay
from lib_dlhpc.simulate import rounds, simulate
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.strategy import ALLREDUCES
from lib_dlhpc.timeline import STREAMS, breakdown, span
from lib_dlhpc.timeline.table import COLUMNS

GOYAL = replay("goyal-2017").experiment
QUIET = GOYAL.set({"machine.jitter": 0.0})
SMALL = loads("""
[model]
name = "resnet18"
[dataset]
samples = 1_000_000
bytes = "100 GB"
files = 1_000_000
[machine]
name = "summit"
jitter = 0.0
[machine.storage.fast]
scope = "node"
bandwidth = "2 GB/s"
write_bandwidth = "1 GB/s"
[strategy]
nodes = 2
bucket = "10 MB"
""")


def assert_equals_prediction(experiment, steps=1):
    found, expected = breakdown(simulate(experiment, steps=steps)), predict(experiment).terms
    total = sum(float(seconds) for seconds in expected.values())
    for terms in (found.terms, found.slowest_terms):
        assert set(terms) == set(expected)
        for name, seconds in expected.items():
            if name != "checkpoint":
                assert terms[name] == pytest.approx(float(seconds), rel=1e-9, abs=1e-9 * total)
    saving = float(expected["checkpoint"])
    assert found.step_time == pytest.approx(total - saving, rel=1e-9)


# --- without jitter: the prediction ---


@pytest.mark.parametrize("name", catalog.names("replays"))
def test_historical_runs_without_jitter_are_as_predicted(name):
    changes = {"machine.jitter": 0.0, "machine.topology": "single-switch"}  # rounds: no congestion
    assert_equals_prediction(replay(name).experiment.set(changes))


@pytest.mark.parametrize("allreduce", ALLREDUCES)
@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("bucket", [1e6, 25e6, 1e9])
def test_goyal_at_256_ranks_is_as_predicted(allreduce, overlap, bucket):
    changes = {
        "strategy.allreduce": allreduce,
        "strategy.overlap": overlap,
        "strategy.bucket": bucket,
        "machine.topology": "single-switch",
    }
    if allreduce == "parameter_server":  # predict lets the host of a node sum
        changes |= {
            "machine.nodes": 256,
            "machine.devices_per_node": 1,
            "strategy.nodes": 256,
            "calibration.devices": 1,
        }
    assert_equals_prediction(QUIET.set(changes))


@pytest.mark.parametrize("allreduce", [name for name in ALLREDUCES if name != "parameter_server"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 6])
@pytest.mark.parametrize("here", [1, 3, 6])
@pytest.mark.parametrize("steps", [1, 3])
def test_any_number_of_ranks_is_as_predicted(allreduce, nodes, here, steps):
    changes = {
        "strategy.nodes": nodes,
        "strategy.devices_per_node": here,
        "strategy.allreduce": allreduce,
        "machine.topology": "single-switch",
    }
    assert_equals_prediction(SMALL.set(changes), steps)


@pytest.mark.parametrize("rate", ["1 kop/s", "10 Mop/s"])
@pytest.mark.parametrize("steps", [1, 4])
def test_a_late_batch_stalls_as_predicted(rate, steps):
    changes = {"storage.tier": "fast", "machine.storage.fast.metadata_rate": rate}
    experiment = SMALL.set({**changes, "run.checkpoint_interval": "1 h"})
    assert (float(predict(experiment).input_stall) > 0) == (rate == "1 kop/s")
    assert_equals_prediction(experiment, steps)


def test_one_device_has_nothing_to_exchange():
    timeline = simulate(SMALL.set({"strategy.nodes": 1, "strategy.devices_per_node": 1}))
    assert not timeline.where("communication").any() and not timeline.where("", "wait").any()


def test_a_model_without_parameters_exchanges_nothing():
    free = {"family": "sequential", "input": [4], "layers": [{"kind": "relu"}]}
    experiment = replace(SMALL, model=read_model(free))
    assert_equals_prediction(experiment)
    assert not simulate(experiment).where("communication").any()


# --- with jitter ---


@settings(max_examples=25)
@given(
    allreduce=st.sampled_from(ALLREDUCES),
    jitter=st.floats(0, 0.5),
    seed=st.integers(0, 99),
    steps=st.integers(1, 3),
    overlap=st.booleans(),
    bucket=st.sampled_from([1e6, 10e6, 1e9]),
    tier=st.sampled_from(["", "fast"]),
)
def test_a_step_obeys_cause_and_effect(allreduce, jitter, seed, steps, overlap, bucket, tier):
    experiment = SMALL.set(
        {
            "machine.jitter": jitter,
            "strategy.allreduce": allreduce,
            "strategy.overlap": overlap,
            "strategy.bucket": bucket,
            "storage.tier": tier,
            "machine.storage.fast.metadata_rate": "10 kop/s",
        }
    )
    timeline = simulate(experiment, seed=seed, steps=steps)
    close = 1e-12 * span(timeline)
    for rank in range(timeline.ranks):
        for stream in STREAMS:  # a stream does one thing at a time
            mine = timeline.select(timeline.where(stream) & (timeline.rank == rank))
            assert (mine.start[1:] >= mine.stop[:-1] - close).all()
    exchange = timeline.select(timeline.where("communication"))
    for number in np.unique(exchange.name):  # nobody has the sum before all have joined
        one = exchange.select(exchange.name == number)
        start, stop = (x.reshape(timeline.ranks, steps) for x in (one.start, one.stop))
        assert (stop.min(axis=0) >= start.max(axis=0)).all()
    sent = exchange.bytes.reshape(timeline.ranks, -1).sum(axis=1)
    assert (sent == 4 * experiment.model.parameters * steps).all()
    update = timeline.select(timeline.where("", "update"))
    last = exchange.stop.reshape(timeline.ranks, steps, -1).max(axis=-1)
    assert (update.start.reshape(timeline.ranks, steps) >= last).all()
    found = breakdown(timeline)
    assert all((seconds >= 0).all() for seconds in found.per_rank.values())
    np.testing.assert_allclose(sum(found.per_rank.values()), found.step_time, rtol=1e-9)
    assert found.step_time * steps == pytest.approx(span(timeline), rel=1e-12)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    noisy = SMALL.set({"machine.jitter": 0.1})

    def all_bytes(timeline):
        return b"".join(getattr(timeline, column).tobytes() for column in COLUMNS)

    assert all_bytes(simulate(noisy, seed=3, steps=2)) == all_bytes(
        simulate(noisy, seed=3, steps=2)
    )
    assert all_bytes(simulate(noisy, seed=3)) != all_bytes(simulate(noisy, seed=4))
    assert all_bytes(simulate(noisy.set({"run.seed": 3}))) == all_bytes(simulate(noisy, seed=3))


def test_many_jittered_steps_come_near_the_prediction():
    experiment = GOYAL.set({"machine.jitter": 0.03})
    found, expected = breakdown(simulate(experiment, steps=100)), predict(experiment)
    assert found.step_time == pytest.approx(float(expected.step_time), rel=0.01)
    waiting = found.terms["waiting for the slowest"]
    assert waiting == pytest.approx(float(expected.straggler_wait), rel=0.05)


def test_a_straggler_in_the_exchange_is_waited_for_by_all():
    noisy = simulate(SMALL.set({"machine.jitter": 0.3}), seed=1)
    compute = noisy.where("compute", "backward")
    slowest = noisy.stop[compute].max()
    assert noisy.start[noisy.where("", "update")].min() >= slowest


# --- fidelity, mistakes ---


def test_fidelity_events_asks_the_event_simulator(monkeypatch):
    asked = []

    def finish_times(schedule, machine, nodes, devices_per_node, element_bytes, arrival):
        asked.append((schedule.name, nodes, devices_per_node))
        return rounds.finish_times(schedule, network_of(SMALL), element_bytes, arrival)

    fake = types.ModuleType("lib_dlhpc.simulate.events")
    fake.finish_times = finish_times
    monkeypatch.setitem(sys.modules, "lib_dlhpc.simulate.events", fake)
    monkeypatch.setattr(sys.modules["lib_dlhpc.simulate"], "events", fake, raising=False)
    found, expected = simulate(SMALL, "events"), simulate(SMALL)
    np.testing.assert_array_equal(found.stop, expected.stop)
    assert set(asked) == {("ring", 2, 6)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"fidelity": "round"}, "Did you mean 'rounds'"),
        ({"steps": 0}, "steps = 0"),
        (
            {"experiment": SMALL.set({"strategy.nodes": np.array([1, 2])})},
            r"strategy\.nodes: an array",
        ),
        ({"experiment": SMALL.set({"strategy.tensor": 2})}, "not modelled yet"),
        (
            {
                "experiment": SMALL.set(
                    {"strategy.precision": "fp64", "machine.device.name": "tpu-v3"}
                )
            },
            "fp64",
        ),
        (
            {"experiment": SMALL.set({"machine.inter_node.bandwidth": np.array([1e9, 1e10])})},
            r"machine\.inter_node\.bandwidth: an array",
        ),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_a_mistake_is_told(arguments, words):
    with pytest.raises(SpecError, match=words):
        simulate(**{"experiment": SMALL, **arguments})
