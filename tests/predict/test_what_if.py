"""What if: the compute time that was measured stays where it holds, and goes where it does not."""

import pytest

from lib_dlhpc.predict import predict, what_if
from lib_dlhpc.predict.replays import replay, replays

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
