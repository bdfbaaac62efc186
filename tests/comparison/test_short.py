"""A shortened run has the requested steps, all of full batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.comparison.short import FEWEST, MOST, shortened, steps_in, steps_of_an_epoch
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.training.data import global_batches

EXPERIMENT = """
[model]
name = "{model}"
[dataset]
name = "{data}"
[machine]
name = "laptop"
[strategy]
devices_per_node = 2
batch = {batch}
"""


def _batches(experiment):
    """Return the sizes of all global batches of a run, as the trainer takes them."""
    epochs, trained, epoch, sizes = experiment.run.epochs, int(experiment.dataset.trained), 0, []
    while epoch < epochs:
        sizes += [len(i) for at, i in global_batches(experiment, trained, epoch) if at < epochs]
        epoch += 1
    return sizes


@pytest.mark.parametrize(("model", "data"), [("mlp-digits", "digits"), ("mlp-mnist", "mnist-5k")])
@given(batch=st.integers(1, 300), steps=st.integers(1, 250))
def test_it_has_as_many_steps_as_requested_each_of_a_whole_batch(model, data, batch, steps):
    short = shortened(loads(EXPERIMENT.format(model=model, data=data, batch=batch)), steps)
    assert _batches(short) == [2 * batch] * steps


@given(steps=st.integers(1, 50), every=st.integers(2, 9))
def test_an_epoch_of_local_steps_ends_with_an_average(steps, every):
    base = loads(EXPERIMENT.format(model="mlp-digits", data="digits", batch=8))
    local = base.set({"strategy.update": "local", "strategy.local_steps": every})
    short = shortened(local, steps * every)
    assert steps_of_an_epoch(short) % every == 0
    assert _batches(short) == [16] * (steps * every)


def test_where_a_batch_is_more_than_all_samples_a_step_is_an_epoch(digits):
    short = shortened(digits.set({"strategy.batch": 5000}), 7)
    assert short.dataset == digits.dataset
    assert len(_batches(short)) == 7


def test_a_sample_keeps_its_bytes(digits):
    short = shortened(digits, 5)
    assert short.dataset.samples < digits.dataset.samples
    assert short.dataset.sample_bytes == pytest.approx(digits.dataset.sample_bytes)


def test_a_run_lasts_about_as_long_as_requested_within_bounds():
    assert steps_in(2.0, 0.05) == 40
    assert steps_in(2.0, 5.0) == FEWEST
    assert steps_in(2.0, 0.0) == MOST


def test_no_step_is_no_run(digits):
    with pytest.raises(SpecError, match="steps = 0: expected a whole number, at least 1"):
        shortened(digits, 0)
