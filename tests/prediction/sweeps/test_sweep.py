"""Laws of a sweep: every cell is the prediction one would make alone."""

import itertools

import numpy as np
import pytest

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.prediction import predict, sweep, what_if
from lib_dlhpc.prediction import sweep as sweep_function

RUN = Experiment(model="resnet50", dataset="imagenet", machine="summit", strategy={"nodes": 4})
CALIBRATION = {"calibration.rate": 1200.0, "calibration.devices": 6, "calibration.batch": 32}
AXES = [
    {"strategy.nodes": [1, 2, 3, 64]},
    {"strategy.allreduce": ["ring", "rabenseifner"]},
    {"strategy.nodes": range(1, 6), "strategy.batch": [8, 16, 300]},
    {
        "strategy.batch": [8, 16],
        "strategy.allreduce": ["ring", "torus_2d"],
        "strategy.nodes": [2, 7],
    },
    {"strategy.overlap": [True, False], "strategy.bucket": ["1 MB", "30 MB"]},
    {"machine.name": ["summit", "dgx1-p100"], "strategy.precision": ["fp32", "fp16"]},
    {"model.name": ["resnet50", "vgg16"], "machine.inter_node.bandwidth": [1e9, 1e10, 1e11]},
    {"strategy.batch": range(1, 80), "machine.device.memory_bandwidth": [1e11, 5e11, 1e12]},
    {"strategy.batch": range(1, 80), "strategy.nodes": [5, 1], "strategy.bucket": [1e6, 1e8]},
    {"strategy.recompute": ["none", "full"], "strategy.optimizer": ["adam"]},
]
QUANTITIES = ("step_time", "throughput", "memory_total", "fits")


def cells(axes):
    shape = tuple(len(list(values)) for values in axes.values())
    for at, choice in zip(np.ndindex(shape), itertools.product(*axes.values()), strict=True):
        yield at, dict(zip(axes, choice, strict=True))


def check(found, axes, one):
    assert found.step_time.shape == tuple(len(list(values)) for values in axes.values())
    for at, changes in cells(axes):
        prediction = one(changes)
        for name in QUANTITIES:
            expected = getattr(prediction, name)
            assert getattr(found, name)[at] == pytest.approx(expected, rel=1e-12), (name, changes)


@pytest.mark.parametrize("axes", AXES, ids=lambda axes: "-".join(axes))
def test_a_sweep_is_a_loop_of_predictions(axes):
    check(sweep(RUN, axes), axes, lambda changes: predict(RUN.set(changes)))


@pytest.mark.parametrize("axes", AXES, ids=lambda axes: "-".join(axes))
def test_a_calibrated_sweep_is_a_loop_of_what_ifs(axes):
    run = RUN.set(CALIBRATION)
    check(sweep(run, axes), axes, lambda changes: predict(what_if(run, changes)))


def test_scale_up_from_a_measured_node_is_the_loop_of_predictions():
    run, axes = RUN.set(CALIBRATION), {"strategy.nodes": [1, 2, 4], "strategy.batch": [16, 32]}
    check(sweep(run, axes), axes, lambda changes: predict(run.set(changes)))


@pytest.mark.parametrize(
    "axes",
    [
        {"calibration.rate": [0.0, 600.0, 1200.0], "strategy.batch": [8, 16]},
        {"strategy.allreduce": ["ring", "binomial"], "calibration.batch": [16, 32]},
        {"calibration.devices": [6, 3, 12]},
    ],
)
def test_a_swept_calibration_is_no_dead_axis(axes):
    run = RUN.set(CALIBRATION)
    found = sweep(run, axes)
    check(found, axes, lambda changes: predict(run.set(changes)))
    assert len(np.unique(found.step_time)) > 1


def test_chunks_do_not_show(monkeypatch):
    axes = {"strategy.nodes": range(1, 50), "strategy.batch": [8, 16, 32]}
    whole = sweep(RUN, axes)
    monkeypatch.setitem(sweep_function.__globals__, "CHUNK", 7)
    small = sweep(RUN, axes)
    for name in QUANTITIES:
        np.testing.assert_array_equal(getattr(whole, name), getattr(small, name))


def test_the_best_fits_and_nothing_that_fits_is_better():
    axes = {"strategy.nodes": [1, 8], "strategy.batch": [16, 64, 100_000]}
    found = sweep(RUN, axes)
    assert found.best() == {"strategy.nodes": 8, "strategy.batch": 64}
    assert not found.fits[:, 2].any() and found.throughput[1, 2] > found.throughput[1, 1]
    with pytest.raises(SpecError, match="fits"):
        sweep(RUN, {"strategy.batch": [10**6]}).best()


@pytest.mark.parametrize(
    "axes",
    [
        {},
        {"strategy.nodes": []},
        {"strategy.nodes": [1, 0]},
        {"strategy.nodes": [1, 5000]},
        {"strategy.allreduce": ["ring", "rings"]},
        {"strategy.colour": [1]},
        {"machine.name": ["summit", "sumit"]},
    ],
)
def test_a_wrong_axis_is_a_spec_error(axes):
    with pytest.raises(SpecError):
        sweep(RUN, axes)


@pytest.mark.parametrize(
    ("axes", "void"),
    [
        ({"model.name": ["resnet50", "vgg16"]}, "'vgg16'"),
        ({"machine.device.memory_bandwidth": [5e11, 1e12]}, "memory_bandwidth"),
        ({"strategy.nodes": [1, 2], "strategy.allreduce": ["ring", "torus_2d"]}, ""),
    ],
)
def test_a_sweep_says_which_axis_makes_the_measured_rate_void(axes, void):
    warned = sweep(RUN.set(CALIBRATION), axes).warnings
    assert bool(warned) == bool(void) and all(void in words for words in warned)
