"""Laws of a run's length: predicted steps are those that the trainer takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import Experiment
from lib_dlhpc.costs.step_count import steps
from lib_dlhpc.spec.dataset import read_dataset
from lib_dlhpc.training.data import MADE, REAL, global_batches

RUN = Experiment(model={"family": "mlp", "widths": [64, 10]}, dataset="digits", machine="laptop")


@given(
    st.integers(2, 1797),
    st.integers(1, 2000),
    st.sampled_from([0.25, 0.5, 1.0, 1.75, 3.0]),
    st.sampled_from([0.0, 0.2, 0.5]),
)
def test_steps_are_those_that_the_trainer_takes(samples, batch, epochs, share):
    run = RUN.set({"dataset.samples": samples, "run.epochs": epochs, "dataset.test_share": share})
    run = run.set({"strategy.devices_per_node": 1, "strategy.batch": batch})
    trained = samples - round(samples * share)
    taken = 0
    for epoch in range(int(np.ceil(epochs))):
        batches = global_batches(run, trained, epoch)
        taken += sum(at < epochs for at, _ in batches)
    assert steps(run) == taken


def test_what_can_be_trained_keeps_samples_for_tests_and_what_has_a_price_only_keeps_none():
    assert steps(RUN.set({"run.epochs": 2, "strategy.batch": 100})) == 2 * 4  # of 1438 samples
    for name in (*REAL, *MADE):
        assert read_dataset(name).test_share == pytest.approx(0.2), name
    assert read_dataset("imagenet").trained == read_dataset("imagenet").samples
