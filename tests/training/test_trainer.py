"""A run on one rank; tests/mpi/test_train.py compares many ranks with one."""

import gc
import weakref

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import breakdown, span
from lib_dlhpc.training import rank, trainer
from lib_dlhpc.training.data import Data, load
from lib_dlhpc.training.rank import Diverged
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.stage import Stage
from lib_dlhpc.training.trainer import train

DIGITS = Experiment(
    model="mlp-digits",
    dataset={"name": "digits", "samples": 250},
    machine="laptop",
    strategy={"devices_per_node": 1, "batch": 30},
    storage={"tier": "ssd"},
    training={"rate": 0.05},
)


def run(changes=(), folder=None):
    """(Run, rows, steps) of DIGITS with changes: 200 samples to train with, 7 steps an epoch."""
    rows, steps = [], []
    done = train(DIGITS.set(dict(changes)), SingleRank(), folder, rows.append, steps.append)
    return done, rows, steps


def test_it_learns_and_reports_progress():
    done, rows, steps = run({"run.epochs": 20})
    epochs = [row for row in rows if "test_loss" in row]
    assert [row["epoch"] for row in epochs] == [float(n) for n in range(1, 21)]
    assert done.accuracy == epochs[-1]["accuracy"] > 0.8
    assert done.test_loss == epochs[-1]["test_loss"] < epochs[0]["test_loss"]
    assert steps == list(range(7 * 20)) and done.samples == 20 * 200
    reported = [row for row in rows if "step" in row]
    assert reported[-1]["step"] == 140 and reported[-1]["loss"] == done.loss
    assert [row["step"] for row in reported] == sorted({row["step"] for row in reported})


def test_the_evaluation_covers_all_test_samples():
    done, *_ = run()
    data = load(DIGITS)
    outputs = done.network.forward(data.test_x, training=False)
    assert done.accuracy == np.mean(outputs.argmax(axis=1) == data.test_y)


def test_a_run_may_end_within_an_epoch():
    done, rows, steps = run({"run.epochs": 1.5})
    assert len(steps) == 7 + 4  # batches that begin before the middle: at 0, 0.15, 0.3 and 0.45
    assert [row["epoch"] for row in rows if "test_loss" in row] == [1.0, pytest.approx(1.6)]
    assert done.samples == 200 + 120


@pytest.mark.parametrize(
    "changes",
    [
        {"training.rate": 0.01},
        {"training.base_batch": 10},
        {"training.warm_up": 0.5},
        {"training.decay": "cosine"},
        {"training.decay": "quadratic"},
        {"training.decay": "step", "training.steps_at": 1.0},
        {"training.decay": "growth", "training.steps_at": 1.0},
        {"training.momentum": 0.5},
        {"training.weight_decay": 0.1},
        {"training.shift": 1},
        {"dataset.test_share": 0.3},
        {"strategy.batch": 20},
        {"strategy.precision": "fp64"},
        {"run.seed": 1},
        {"run.epochs": 3},
        {"dataset.samples": 300},
        *({"strategy.optimizer": name} for name in ("sgd", "lars", "adam", "lamb")),
    ],
    ids=str,
)
def test_every_option_changes_the_weights(changes):
    image = {"model.widths": [64, 10]}
    if "training.shift" in changes:
        layers = [{"kind": "flatten"}, {"kind": "dense", "features": 10}]
        image = {"model.family": "sequential", "model.input": [1, 8, 8], "model.layers": layers}
    experiment = DIGITS
    if "model.family" in image:
        from dataclasses import replace

        from lib_dlhpc.spec.experiment import read_model

        table = {key.removeprefix("model."): value for key, value in image.items()}
        experiment = replace(DIGITS, model=read_model(table))
    short = experiment.set({"run.epochs": 2.0})
    plain = train(short, SingleRank()).network.weights
    assert (train(short, SingleRank()).network.weights == plain).all()
    moved = train(short.set(changes), SingleRank()).network.weights
    assert not np.array_equal(moved, plain)


@pytest.mark.parametrize("normalization", ["local", "global"])
def test_a_non_finite_loss_is_reported_with_rank_step_and_layer(normalization):
    changes = {"training.rate": 1e30, "training.normalization": normalization}
    with (
        np.errstate(all="ignore"),
        pytest.raises(Diverged, match=r"rank 0, step [12], first in dense\d \(dense\)"),
    ):
        run(changes)


def test_non_finite_weights_after_the_last_step_are_noticed_by_the_evaluation():
    changes = {"training.rate": 1e30, "run.epochs": 0.1}
    with np.errstate(all="ignore"), pytest.raises(Diverged, match=r"test samples.*after step 1"):
        run(changes)


def test_tests_and_their_time_are_not_part_of_the_timeline(monkeypatch):
    """Otherwise a slow evaluation would look like a slow exchange."""
    test = rank.Rank._test

    def slow(self, step):
        import time

        begin = self.recorder.now()
        time.sleep(0.2)
        self.recorder.leave_out(self.recorder.now() - begin)
        return test(self, step)

    monkeypatch.setattr(rank.Rank, "_test", slow)
    done, *_ = run({"run.epochs": 3})
    measured = breakdown(done.timeline)
    assert measured.steps == 21
    assert sum(measured.terms.values()) == pytest.approx(measured.step_time)
    assert span(done.timeline) < done.seconds - 3 * 0.2


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    """Bitwise, wherever it was interrupted: in an epoch, between two, at the end."""
    ways = [
        {"strategy.optimizer": name, "training.warm_up": 1.0}
        for name in ("sgd", "momentum", "lars", "adam", "lamb")
    ]
    for number, way in enumerate(ways):
        straight, *_ = run(way | {"run.epochs": 3})
        folder = tmp_path / str(number)
        folder.mkdir()
        total = 0
        for until in (0.3, 1.0, 1.7, 3.0):
            done, _, steps = run(way | {"run.epochs": until}, folder)
            assert not steps or steps[0] == total
            total += len(steps)
        assert total == 21
        assert done.network.weights.tobytes() == straight.network.weights.tobytes()
        assert (done.test_loss, done.accuracy) == (straight.test_loss, straight.accuracy)
        done, rows, steps = run(way | {"run.epochs": 3}, folder)
        assert not rows and not steps and done.test_loss == straight.test_loss


def test_snapshots_are_written_at_the_requested_interval(tmp_path, monkeypatch):
    places, save = [], rank.save

    def noted(*arguments):
        places.append(arguments[-1].step)
        save(*arguments)

    monkeypatch.setattr(rank, "save", noted)
    run({"run.epochs": 2}, tmp_path)
    assert places == [7, 14]
    places.clear()
    run({"run.epochs": 4, "run.checkpoint_interval": 1e-9}, tmp_path)
    assert places == list(range(15, 29))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dataset.name": "imagenet"}, "predicted but not trained"),
        ({"strategy.precision": "tf32"}, "numpy has no such numbers"),
        ({"strategy.devices_per_node": 2, "strategy.pipeline": 2}, "1 ranks: .* start 2"),
        ({"strategy.microbatches": 2, "strategy.precision": "fp16"}, "'fp64' or 'fp32'"),
        ({"strategy.zero": 1, "training.sparsity": 0.5}, "legal value is 0"),
        ({"strategy.offload": "all", "strategy.zero": 1}, "legal value is 0"),
        ({"strategy.recompute": "full", "strategy.update": "local"}, "is 'synchronous'"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes, words):
    with pytest.raises(SpecError, match=words):
        run(changes)


@pytest.mark.parametrize(("rate", "epochs"), [(10, 0.3), (100, 1.0), (100, 4.0), (1000, 0.3)])
def test_a_run_that_ends_far_above_a_guess_has_diverged(rate, epochs, tmp_path):
    """Its loss is finite, but its weights have grown; resuming does not change that."""
    changes = {"training.rate": rate, "run.epochs": epochs}
    for _ in range(2):
        with (
            np.errstate(all="ignore"),
            pytest.raises(Diverged, match=rf"guess, 2\.3 .*than {rate:g}"),
        ):
            run(changes, tmp_path)


def test_chance_is_not_divergence():
    """A run that learns nothing ends near the loss of a guess."""
    done, *_ = run({"training.rate": 1e-9, "run.epochs": 0.5})
    assert trainer.loss_of_a_guess(load(DIGITS), 10) / 2 < done.test_loss < 2 * np.log(10)
    none = np.zeros((4, 1))
    assert trainer.loss_of_a_guess(Data(none, none + 3.0, none, none), 1) == 1 + 9


@pytest.mark.parametrize("changes", [{}, {"strategy.microbatches": 2}, {"strategy.zero": 1}])
def test_the_memory_of_a_run_is_free_at_its_end(changes, monkeypatch):
    """Without the garbage collector, or a second run of a process would be measured against a false baseline."""
    found, begin = [], Stage.__init__

    def noted(self, *arguments):
        begin(self, *arguments)
        found.append(weakref.ref(self.network.weights))

    monkeypatch.setattr(Stage, "__init__", noted)
    gc.collect()
    gc.disable()
    try:
        run(changes)
        assert found and all(weights() is None for weights in found)
    finally:
        gc.enable()
