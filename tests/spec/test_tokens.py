"""run.tokens: the length of a run of a language model, read as samples of its sequence."""

import numpy as np
import pytest

from lib_dlhpc import Experiment, SpecError, predict
from lib_dlhpc.spec.experiment import dumps, load, loads

RUN = Experiment(model="llama3-8b", machine="h100-pod")


def test_tokens_are_samples_of_the_sequence_read_once():
    run = RUN.set({"run.tokens": "15 T", "run.seed": 3})
    sequence = run.model.input_shape[0]
    assert run.dataset.samples == round(15e12 / sequence)
    assert (run.run.epochs, run.run.seed, run.dataset.sample_shape) == (1, 3, (sequence,))
    before = RUN.dataset.sample_bytes / RUN.dataset.sample_shape[0]
    assert run.dataset.sample_bytes / sequence == pytest.approx(before)
    p = predict(run)
    assert float(p.time_to_train) == pytest.approx(15e12 / float(p.tokens), rel=1e-5)
    assert loads(dumps(run)) == run


def test_the_sequence_counts_that_is_set_with_it():
    run = RUN.set({"run.tokens": 2.0**40, "model.sequence": 2048})
    assert run.dataset.samples == 2**29 and run.dataset.sample_shape == (2048,)
    assert RUN.set({"model.sequence": 2048, "run.tokens": 2.0**40}) == run


def test_held_out_samples_are_not_counted():
    run = RUN.set({"run.tokens": 1e9, "dataset.test_share": 0.5})
    assert run.dataset.trained == pytest.approx(1e9 / run.model.input_shape[0], rel=1e-4)


def test_an_array_of_tokens_is_an_axis():
    several = predict(RUN.set({"run.tokens": np.array([1e11, 1e12])})).time_to_train
    each = [float(predict(RUN.set({"run.tokens": n})).time_to_train) for n in (1e11, 1e12)]
    assert several == pytest.approx(each)


def test_a_file_and_a_table_state_them_like_a_change():
    table = {"model": "llama3-8b", "machine": "h100-pod", "run": {"tokens": 1e12, "seed": 2}}
    run = Experiment(**table)
    assert run == RUN.set({"run.tokens": 1e12, "run.seed": 2})
    text = 'model = "llama3-8b"\nmachine = "h100-pod"\ndataset = "webtext"\nrun = { tokens = 1e12, seed = 2 }'
    assert loads(text) == run


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"run.epochs": 2}, "run.tokens and run.epochs both state the length"),
        ({"dataset.samples": 2}, "run.tokens and dataset.samples both state the length"),
        ({"run.tokens": 0}, "run.tokens = 0: legal: a number above 0"),
        ({"run.tokens": "many"}, "run.tokens = 'many': not a number"),
    ],
)
def test_a_length_stated_twice_or_not_at_all_is_refused(changes, says):
    with pytest.raises(SpecError, match=says):
        RUN.set({"run.tokens": 1e12} | changes)


def test_tables_that_state_both_are_refused():
    model = {"model": "llama3-8b", "machine": "h100-pod"}
    for more in ({"run": {"epochs": 1}}, {"dataset": {"name": "webtext", "samples": 9}}):
        run = {"tokens": 1e12, **more.pop("run", {})}
        with pytest.raises(SpecError, match="both state the length"):
            Experiment(**model, **more, run=run)


def test_a_model_without_tokens_is_refused():
    with pytest.raises(SpecError, match=r"resnet50 reads no tokens; give run\.epochs"):
        load("goyal-2017").set({"run.tokens": 1e9})
