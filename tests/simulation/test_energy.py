"""Energy of simulated steps: equal to the prediction's where the seconds are, and to power over time."""

import numpy as np
import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import energy_of, measure, power_over_time, simulate, simulate_terms

RUN = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine={"name": "summit", "jitter": 0.0},
    strategy={"nodes": 2, "batch": 32},
)
SPLITS = {
    "plain": {},
    "limited": {"strategy.power_limit": 150.0},
    "pipeline": {"strategy.pipeline": 3, "strategy.microbatches": 6},
    "interleaved": {
        "strategy.pipeline": 2,
        "strategy.microbatches": 4,
        "strategy.schedule": "interleaved",
        "strategy.chunks": 2,
        "strategy.power_limit": 120.0,
    },
    "recomputed": {"strategy.recompute": "full", "strategy.tensor": 2},
    "spatial": {"strategy.spatial": 2},
    "local": {"strategy.update": "local", "strategy.local_steps": 2},
    "starved": {"machine.storage.gpfs.bandwidth": 1e8, "storage.tier": "gpfs"},
}


def area(experiment, timeline):
    """Joules under the curve of power over time."""
    curve = power_over_time(experiment, timeline)
    return float((np.diff(curve["start"]) * np.array(curve["watts"])[:-1]).sum())


@pytest.mark.parametrize("split", SPLITS)
def test_joules_are_those_of_the_prediction_and_of_the_curve(split):
    run = RUN.set(SPLITS[split])
    timeline = simulate(run)
    found = measure(run, timeline)
    joules = energy_of(run, found)
    predicted = {cause: float(each) for cause, each in predict(run).energy.items()}
    assert joules == pytest.approx(predicted, rel=1e-9, abs=1e-9 * sum(joules.values()))
    assert area(run, timeline) == pytest.approx(sum(joules.values()) * found.steps, rel=1e-9)


def test_stragglers_draw_more_than_those_who_wait():
    """With jitter the curve still has the joules of its own terms, and lies between idle and busy."""
    run = RUN.set({"machine.jitter": 0.2, "machine.pue": 1.0})
    timeline = simulate(run, steps=3)
    assert area(run, timeline) == pytest.approx(
        3 * sum(energy_of(run, measure(run, timeline)).values()), rel=1e-9
    )
    watts = np.array(power_over_time(run, timeline)["watts"])[:-1]
    device, others = run.machine.device, 2 * (run.machine.node_power + run.machine.switch_power)
    assert np.all(watts >= 12 * device.idle_power + others - 1e-6)
    assert np.all(watts <= 12 * device.busy_power + others + 1e-6)


def test_terms_without_rows_have_the_same_joules():
    run = RUN.set({**SPLITS["pipeline"], "machine.jitter": 0.1})
    with_rows = energy_of(run, measure(run, simulate(run, steps=2)))
    assert energy_of(run, simulate_terms(run, steps=2)) == pytest.approx(with_rows, rel=1e-9)
