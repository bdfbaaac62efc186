"""Laws of the data: every sample once an epoch, no test sample in training, the same on any number of ranks."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from time import sleep

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.dataset import read_dataset
from lib_dlhpc.spec.experiment import Experiment, read_model
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.training.data import (
    MADE,
    REAL,
    check_data,
    global_batches,
    load,
    samples_of,
    share,
    shifted,
    stored,
)
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.trainer import train

IMAGES = {
    "family": "sequential",
    "input": [1, 10, 10],
    "layers": [
        {"kind": "conv", "channels": 8, "kernel": 5},
        {"kind": "relu"},
        {"kind": "max_pool", "kernel": 2},
        {"kind": "flatten"},
        {"kind": "dense", "features": 4},
    ],
}
FIELDS = {
    "family": "sequential",
    "input": [1, 8, 8, 8],
    "layers": [
        {"kind": "conv", "channels": 4, "kernel": 3},
        {"kind": "leaky_relu"},
        {"kind": "avg_pool", "kernel": 2},
        {"kind": "flatten"},
        {"kind": "dense", "features": 8},
        {"kind": "relu"},
        {"kind": "dense", "features": 1},
    ],
}
SENTENCES = {
    "family": "gpt",
    "layers": 1,
    "hidden": 16,
    "heads": 2,
    "sequence": 8,
    "vocabulary": 12,
    "dropout": 0.0,
}
MODELS = {"digits": "mlp-digits", "mnist-5k": "mlp-mnist"}
MODELS |= {"waves": IMAGES, "words": SENTENCES, "densities": FIELDS}


def experiment_of(name, samples=0, **changes):
    data = {"name": name, "samples": samples} if samples else name
    plain = Experiment(read_model(MODELS[name]), read_dataset(data), load_machine("laptop"))
    return plain.set({"strategy.devices_per_node": 1, **changes})


@given(st.integers(1, 300), st.integers(1, 100), st.integers(0, 9), st.integers(0, 9))
def test_an_epoch_has_every_sample_once_in_a_new_order(samples, batch, seed, epoch):
    experiment = experiment_of("digits", **{"strategy.batch": batch, "run.seed": seed})
    batches = list(global_batches(experiment, samples, epoch))
    assert sorted(np.concatenate([indices for _, indices in batches])) == list(range(samples))
    assert {len(indices) for _, indices in batches[:-1]} <= {batch}
    at = [at for at, _ in batches]
    assert at[0] == epoch and at == sorted(at) and at[-1] < epoch + 1


def test_the_order_depends_only_on_seed_and_epoch():
    def order(epoch=0, **changes):
        batches = global_batches(experiment_of("digits", **changes), 500, epoch)
        return np.concatenate([indices for _, indices in batches]).tolist()

    assert order() == order()
    assert order() == order(**{"strategy.batch": 7})
    assert order() == order(**{"strategy.allreduce": "torus_2d", "training.rate": 1.0})
    assert order() != order(epoch=1)
    assert order() != order(**{"run.seed": 1})


def test_the_batch_may_grow_but_not_beyond_all_samples():
    growing = {"strategy.batch": 3, "training.decay": "growth", "training.steps_at": 2.0}
    experiment = experiment_of("digits", **growing)
    sizes = [len(next(global_batches(experiment, 100, epoch))[1]) for epoch in range(7)]
    assert sizes == [3, 3, 30, 30, 100, 100, 100]


@given(st.integers(0, 200), st.integers(1, 40))
def test_parts_are_contiguous_and_make_up_the_batch(batch, ranks):
    shares = [share(batch, rank, ranks) for rank in range(ranks)]
    assert [i for part in shares for i in range(batch)[part]] == list(range(batch))
    sizes = [part.stop - part.start for part in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", MODELS)
def test_no_sample_of_the_test_is_trained_on(name):
    experiment = experiment_of(name, samples=90 if name in MADE else 0)
    data = load(experiment)
    count = experiment.dataset.samples
    assert len(data.test_x) == len(data.test_y) == round(0.2 * count)
    assert len(data.x) == len(data.y) == count - len(data.test_x)
    trained, tested = (Counter(sample.tobytes() for sample in x) for x in (data.x, data.test_x))
    other = load(experiment.set({"dataset.test_share": 0.5}))
    halves = [sample.tobytes() for x in (other.x, other.test_x) for sample in x]
    assert trained + tested == Counter(halves)
    if name not in ("digits", "words"):  # of which a few are equal
        assert not trained & tested


@pytest.mark.parametrize("name", ["digits", "mnist-5k"])
def test_what_is_written_to_samples_is_not_in_those_of_the_next(name):
    experiment = experiment_of(name, samples=60)
    one, kept = load(experiment), load(experiment)
    for field in ("x", "y", "test_x", "test_y"):
        getattr(one, field)[...] = 0
        assert getattr(load(experiment), field).tobytes() == getattr(kept, field).tobytes()


@pytest.mark.parametrize("name", MODELS)
def test_samples_are_the_same_every_time_and_fit_the_model(name):
    experiment = experiment_of(name, samples=60)
    one, other = load(experiment), load(experiment.set({"run.seed": 5, "strategy.batch": 3}))
    for field in ("x", "y", "test_x", "test_y"):
        assert getattr(one, field).tobytes() == getattr(other, field).tobytes()
    assert one.x.shape == (48, *experiment.model.input_shape)
    assert load(experiment, np.float64).x.dtype == (np.float64 if name != "words" else np.int64)
    if one.classes:
        assert one.y.min() >= 0 and one.y.max() < experiment.model.output_shape[-1]


def test_real_data_match_their_description():
    for name, (samples, size, classes) in REAL.items():
        experiment = experiment_of(name)
        data = load(experiment)
        assert experiment.dataset.samples == samples == len(data.x) + len(data.test_x)
        assert data.x[0].size == size and set(np.unique(data.y)) == set(range(classes))
        assert data.x.min() == 0 and data.x.max() == 1


def test_fewer_samples_than_there_are_can_be_asked_for():
    few, all_of_them = load(experiment_of("digits", samples=100)), load(experiment_of("digits"))
    assert len(few.x) == 80
    known = {sample.tobytes() for sample in np.concatenate([all_of_them.x, all_of_them.test_x])}
    assert {sample.tobytes() for sample in few.x} <= known


def test_words_follow_a_chain_and_the_next_one_is_the_target():
    data = load(experiment_of("words", samples=1000))
    assert (data.y[:, :-1] == data.x[:, 1:]).all()
    follows = np.zeros((12, 12))
    np.add.at(follows, (data.x.ravel(), data.y.ravel()), 1)
    likeliest = follows.max(axis=1) / follows.sum(axis=1)
    assert likeliest.mean() > 3 / 12  # there is something to learn


def test_the_steeper_the_spectrum_the_smoother_the_field():
    data = load(experiment_of("densities", samples=200))
    roughness = np.mean(np.diff(data.x[:, 0], axis=1) ** 2, axis=(1, 2, 3))
    assert np.corrcoef(roughness, data.y[:, 0])[0, 1] < -0.9


@given(st.integers(-7, 7), st.integers(-7, 7), st.integers(0, 99))
def test_shifting_moves_an_image_and_fills_up_with_zeros(down, right, seed):
    x = np.random.default_rng(seed).random((1, 2, 5, 4)) + 1
    moved = shifted(x, np.array([[down, right]]))
    for row in range(5):
        for column in range(4):
            there = 0 <= row - down < 5 and 0 <= column - right < 4
            expected = x[0, :, row - down, column - right] if there else 0
            assert (moved[0, :, row, column] == expected).all()


def test_shifts_depend_on_seed_and_step_and_not_on_the_ranks():
    experiment = experiment_of("waves", samples=60, **{"training.shift": 2})
    data, indices = load(experiment), np.arange(31)
    whole = samples_of(experiment, data, 3, indices, slice(0, 31))
    for ranks in (2, 3, 40):
        parts = [
            samples_of(experiment, data, 3, indices, share(31, rank, ranks))
            for rank in range(ranks)
        ]
        assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert not np.array_equal(whole, samples_of(experiment, data, 4, indices, slice(0, 31)))
    plain = experiment.set({"training.shift": 0})
    assert np.array_equal(samples_of(plain, data, 3, indices, slice(0, 31)), data.x[:31])
    other = experiment.set({"run.seed": 1})
    assert not np.array_equal(whole, samples_of(other, data, 3, indices, slice(0, 31)))


@pytest.mark.parametrize("shift", [0, 2])
def test_a_rank_reads_its_rows_of_an_image_and_no_more(shift):
    experiment = experiment_of("waves", samples=60, **{"training.shift": shift})
    data, indices = load(experiment), np.arange(20)[::-1]
    whole = samples_of(experiment, data, 3, indices, slice(4, 9))
    rows = samples_of(experiment, data, 3, indices, slice(4, 9), slice(3, 7))
    assert rows.shape[2] == 4 and np.array_equal(rows, whole[:, :, 3:7])
    if not shift:
        base = rows if rows.base is None else rows.base
        assert base.size == rows.size


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("digits", {"dataset.name": "imagenet"}, "predicted but not trained"),
        ("digits", {"dataset.name": "mnist-5k"}, "784 numbers per sample"),
        ("digits", {"model.widths": [64, 9]}, "10 classes or more"),
        ("digits", {"dataset.name": "waves"}, "images"),
        ("digits", {"dataset.name": "words"}, "sequences of words"),
        ("waves", {"dataset.name": "densities"}, ""),
        ("digits", {"dataset.samples": 1798}, "has 1797"),
        ("digits", {"dataset.samples": 1}, "too few"),
        ("digits", {"dataset.test_share": 0.0001}, "too few"),
        ("words", {"training.shift": 1}, "training.shift = 1"),
    ],
)
def test_data_that_do_not_fit_are_refused(name, changes, words):
    experiment = experiment_of(name).set(changes)
    if not words:
        check_data(experiment)  # a picture is a field of two dimensions
        return
    with pytest.raises(SpecError, match=words):
        check_data(experiment)
    with pytest.raises(SpecError, match=words):
        load(experiment)


@pytest.mark.parametrize("name", MADE)
def test_a_small_network_learns_synthetic_data(name):
    changes = {"strategy.batch": 16, "run.epochs": 8, "strategy.optimizer": "adam"}
    samples = {"waves": 300, "words": 300, "densities": 200}[name]
    rows = []
    experiment = experiment_of(name, samples, **changes, **{"training.rate": 0.005})
    run = train(experiment, SingleRank(), report=rows.append)
    tests = [row["test_loss"] for row in rows if "test_loss" in row]
    assert run.test_loss == tests[-1] < 0.75 * tests[0], tests
    if run.accuracy is not None:
        chance = 1 / experiment.model.output_shape[-1]
        assert run.accuracy > 2 * chance
    assert list(islice((row["epoch"] for row in rows if "test_loss" in row), 2)) == [1.0, 2.0]


def test_threads_read_a_file_one_after_the_other(monkeypatch):
    """Emulated ranks are threads; in CPython 3.11 two that parse a header at once end in a SystemError."""
    reading, together, read = [], [], np.load

    def slowly(*arguments):
        together.append(len(reading))
        reading.append(None)
        sleep(0.01)
        file = read(*arguments)
        reading.pop()
        return file

    monkeypatch.setattr(np, "load", slowly)
    stored.cache_clear()
    names = ["digits", "mnist-5k", "digits", "mnist-5k"]
    with ThreadPoolExecutor(4) as pool:
        every = list(pool.map(lambda name: load(experiment_of(name, samples=100)), names))
    assert together == [0, 0]  # each file once
    assert all(np.array_equal(every[k].x, every[k + 2].x) for k in range(2))
