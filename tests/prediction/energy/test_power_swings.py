"""Power swings of a facility: equal to those of a simulated step, and smoothing that costs what it must."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.energy.power_swings import (
    Wave,
    floored,
    staggered,
    stalled,
    step_wave,
    stored,
)
from lib_dlhpc.simulation import power_over_time, simulate
from lib_dlhpc.spec.experiment import read_experiment

STEPS = st.lists(st.tuples(st.floats(0.01, 10), st.floats(1.0, 1000.0)), min_size=1, max_size=6)


def run(**strategy):
    machine = {"name": "h100-pod", "jitter": 0.0, "nics": 1}
    own = {"nodes": 2, "devices_per_node": 8, "batch": 1, "precision": "bf16", "zero": 1}
    tables = {"model": "llama3.2-1b", "dataset": "webtext", "machine": machine}
    return read_experiment({**tables, "strategy": {**own, "optimizer": "adam", **strategy}})


def wave(steps):
    return Wave(*np.array(steps, float).T)


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("nodes", [2, 8])
def test_a_predicted_wave_is_that_of_the_simulated_step(zero, nodes):
    experiment = run(zero=zero, nodes=nodes)
    own = step_wave(predict(experiment))
    power = power_over_time(experiment, simulate(experiment, steps=1))
    start, watts = np.array(power["start"]), np.array(power["watts"])[:-1]
    assert own.period == pytest.approx(start[-1] - start[0], rel=1e-9)
    assert own.joules == pytest.approx((np.diff(start) * watts).sum(), rel=1e-9)
    for extreme in (np.min, np.max):
        assert extreme(own.watts) == pytest.approx(extreme(watts), rel=1e-9)


def test_a_wave_has_the_energy_of_the_prediction():
    step = predict(run())
    assert step_wave(step).joules == pytest.approx(sum(map(float, step.energy.values())))


def test_devices_out_of_phase_are_refused():
    pipeline = run(devices_per_node=8, pipeline=2, microbatches=4, batch=4)
    with pytest.raises(SpecError, match="in phase"):
        step_wave(predict(pipeline))


def test_a_stall_is_idle_and_the_training_before_it_draws_the_mean():
    step = predict(run())
    plain = step_wave(step)
    own = stalled(plain, step, 600.0, 60.0)
    assert own.period == 660 and own.watts[0] == pytest.approx(plain.mean)
    assert own.watts[1] < plain.watts.min()


@given(STEPS, st.integers(1, 8))
def test_staggered_jobs_draw_the_same_energy_and_swing_no_more(steps, jobs):
    plain = wave(steps)
    own = staggered(plain, jobs)
    assert own.period == pytest.approx(plain.period)
    assert own.joules == pytest.approx(plain.joules, rel=1e-6)
    assert own.swing <= plain.swing * (1 + 1e-9) + 1e-9
    if jobs == 1:
        assert own.swing == pytest.approx(plain.swing)


def test_two_jobs_half_a_period_apart_fill_each_others_valleys():
    own = staggered(wave([(1, 10), (1, 2)]), 2)
    assert own.watts == pytest.approx([6] * len(own.watts))


@given(STEPS, st.floats(1.0, 1000.0))
def test_a_floor_adds_what_is_below_it(steps, floor):
    plain = wave(steps)
    own = floored(plain, floor)
    assert own.watts.min() >= floor
    below = sum(seconds * max(0.0, floor - watts) for seconds, watts in steps)
    assert own.joules == pytest.approx(plain.joules + below)


@given(STEPS, st.floats(0.0, 1.0), st.floats(0.5, 1.0))
def test_storage_shrinks_the_swing_and_costs_its_losses(steps, part, efficiency):
    plain = wave(steps)
    own, held = stored(plain, part, efficiency)
    assert own.swing == pytest.approx((1 - part) * plain.swing, abs=1e-6)
    delivered = part * sum(s * max(0.0, w - plain.mean) for s, w in steps)
    assert own.joules == pytest.approx(plain.joules + delivered * (1 / efficiency - 1))
    assert 0 <= held <= delivered * (1 + 1e-9) + 1e-9


def test_storage_holds_what_a_valley_leaves():
    _, held = stored(wave([(3, 10), (1, 2)]), 1.0, 0.9)
    assert held == pytest.approx(3 * (10 - 8))
