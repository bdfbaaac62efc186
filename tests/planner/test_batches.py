"""The batch as a choice of a plan: time and energy to the target, refusals where nobody measured."""

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner import plan
from lib_dlhpc.prediction.accuracy import to_accuracy
from lib_dlhpc.spec.experiment import Experiment, dumps, loads

GOYAL = Experiment(
    model="resnet50",
    machine="summit",
    strategy={"nodes": 32, "devices_per_node": 4, "batch": 64},
    run={"target": 0.76},
    plan={"batch": [256, 8192, 65536]},
)
CHOOSE = {"pipeline": [1], "spatial": [1], "microbatches": [1], "recompute": ["none"]}
CHOOSE |= {"tensor": [1], "zero": [0, 1]}


@pytest.mark.parametrize("objective", ["time", "energy"])
def test_goyals_8_k_is_chosen_and_its_64_k_is_refused(objective):
    found = plan(GOYAL, objective, choose=CHOOSE)
    assert found.best.experiment.global_batch == 8192 and "batch 8,192" in found.best.words
    assert {choice.experiment.global_batch for choice in found.ranked} == {256, 8192}
    (reason,) = (each for each in found.left_out if "65,536" in each)
    assert "beyond 8,192" in reason
    assert found.accuracy.startswith("ResNet-50 on ImageNet") and found.gap == 0
    assert found.predicted + found.pruned <= found.legal


def test_what_is_compared_is_time_and_energy_to_the_target():
    for choice in plan(GOYAL, choose=CHOOSE).ranked:
        reached = to_accuracy(choice.prediction)
        assert choice.values["time"] == pytest.approx(reached.time.median, rel=1e-12)
        assert choice.values["energy"] == pytest.approx(reached.energy.median, rel=1e-12)


def test_a_batch_that_nobody_measured_stays_as_in_the_file():
    run = GOYAL.set({"strategy.optimizer": "adam", "plan.batch": [4096, 8192]})
    found = plan(run, choose=CHOOSE)
    assert {choice.experiment.global_batch for choice in found.ranked} == {8192}
    assert "accuracy not assessed" in found.accuracy
    assert any("4,096" in each and "batch must stay" in each for each in found.left_out)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([65536], "every batch is refused: batch of 65,536"),
        ([100], "plan.batch: 100: expected multiples of the 128 replicas"),
        ([0], "plan.batch: 0: expected whole numbers"),
        ([2.5], "plan.batch: 2.5: expected whole numbers"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(batch, message):
    with pytest.raises(SpecError, match=message):
        plan(GOYAL.set({"plan.batch": batch}), choose=CHOOSE)


def test_batches_are_kept_in_a_file():
    assert loads(dumps(GOYAL)).plan.batch == (256, 8192, 65536)
