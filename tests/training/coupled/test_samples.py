"""Samples: each begins where the previous one ended, until the simulation restarts."""

import numpy as np
import pytest

from lib_dlhpc.spec.workflow import Simulation
from lib_dlhpc.training.coupled.heat import Heat, first_field
from lib_dlhpc.training.coupled.samples import NoLog, Samples, unseen

SIMULATION = Simulation(grid=8, sampling=3, restart=12, substeps=2)


def test_a_sample_is_a_field_and_its_later_state():
    before, after = Samples(Heat(SIMULATION), NoLog()).batch(10)
    for number in range(10):
        heat = Heat(SIMULATION)
        heat.begin(before[number])
        for _ in range(SIMULATION.sampling):
            heat.step()
        assert np.array_equal(after[number], heat.field)


def test_each_begins_where_the_last_ended_until_the_restart():
    before, after = Samples(Heat(SIMULATION), NoLog()).batch(9)
    for number in range(9):
        stretch, place = divmod(number, 4)  # four samples from one restart to the next
        expected = after[number - 1] if place else first_field(SIMULATION, stretch)
        assert np.array_equal(before[number], expected)


@pytest.mark.parametrize("sizes", [(12,), (1, 11), (5, 5, 2)])
def test_the_cut_into_batches_changes_nothing(sizes):
    whole = Samples(Heat(SIMULATION), NoLog()).batch(12)
    samples = Samples(Heat(SIMULATION), NoLog())
    reported = []
    parts = [samples.batch(many, lambda: reported.append(1)) for many in sizes]
    assert np.array_equal(np.concatenate(parts, axis=1), whole)
    assert len(reported) == 12


def test_test_samples_are_never_trained_on():
    seen = Samples(Heat(SIMULATION), NoLog()).batch(40)[0]
    for field in unseen(SIMULATION, 20)[0]:
        assert not any(np.array_equal(field, other) for other in seen)
