"""What if: the compute time that was measured stays where it holds, and goes where it does not."""

import pytest

from lib_dlhpc.prediction import predict, what_if
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.prediction.validation.replays import replay, replays

GOYAL = replay("goyal-2017").experiment


@pytest.mark.parametrize("run", replays(), ids=lambda run: run.name)
def test_nothing_changed_changes_nothing(run):
    same = predict(what_if(run.experiment, {}))
    assert same.step_time == pytest.approx(predict(run.experiment).step_time, rel=1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy.allreduce": "binomial"},
        {"strategy.overlap": False},
        {"strategy.bucket": 1e6},
        {"strategy.nodes": 2},
        {"machine.intra_node.bandwidth": 1e9},
        {"machine.inter_node.bandwidth": 1e9},
        {"storage.tier": ""},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_exchange_leaves_the_compute_time(changes):
    before, after = predict(GOYAL), predict(what_if(GOYAL, changes))
    assert after.compute == pytest.approx(before.compute, rel=1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        {"model.name": "vgg16"},
        {"machine.name": "abci"},
        {"machine.device.memory_bandwidth": 1e12},
        {"strategy.precision": "fp16"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_model_device_or_precision_drops_the_rate(changes):
    assert what_if(GOYAL, changes).calibration.rate == GOYAL.set(changes).calibration.rate == 0
    assert GOYAL.set({**changes, "calibration.rate": 5.0}).calibration.rate == 5.0


def test_a_given_calibration_is_taken_as_it_is():
    changes = {"calibration.rate": 500.0, "calibration.devices": 4}
    assert what_if(GOYAL, changes) == GOYAL.set(changes)


@pytest.mark.parametrize("again", ["none", "full"])
def test_recomputation_costs_a_forward_pass_however_the_rate_was_measured(again):
    """The rate is that of the old work: the new one takes as much longer, or less long."""
    other = {"none": "full", "full": "none"}[again]
    quiet = GOYAL.set({"machine.jitter": 0.0, "strategy.overlap": False})
    run = quiet.set({"strategy.recompute": again})
    one, two = predict(run), predict(what_if(run, {"strategy.recompute": other}))
    with_it, without = (two, one) if other == "full" else (one, two)
    assert with_it.forward == pytest.approx(without.forward)
    assert with_it.backward == pytest.approx(without.backward + without.forward, rel=0.02)
    assert predict(what_if(run, {})).step_time == pytest.approx(one.step_time)


def test_another_optimizer_leaves_the_passes():
    before, after = predict(GOYAL), predict(what_if(GOYAL, {"strategy.optimizer": "adam"}))
    assert after.forward == pytest.approx(before.forward) and after.update > before.update


def test_the_warning_is_about_the_rate_that_was_given():
    (words,) = what_if(GOYAL, {"model.name": "vgg16"}).warnings
    assert "1089.4" in words and "'resnet50'" in words and "'vgg16'" in words
    assert words in next(
        part.assumes for part in explain(predict(what_if(GOYAL, {"model.name": "vgg16"})))
    )
