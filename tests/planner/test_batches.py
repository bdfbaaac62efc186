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
        ([130], "1 batch of 130: no layout fits it"),
        ([0], "plan.batch: 0: expected whole numbers"),
        ([2.5], "plan.batch: 2.5: expected whole numbers"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(batch, message):
    with pytest.raises(SpecError, match=message):
        plan(GOYAL.set({"plan.batch": batch}), choose=CHOOSE)


@pytest.mark.parametrize("batch", [[256, 8192], [8192, 256]])
def test_batches_share_the_predictions_in_any_order(batch):
    run, choose = GOYAL.set({"plan.batch": batch}), {**CHOOSE, "pipeline": [1, 2]}
    del choose["microbatches"], choose["zero"]
    best, early = plan(run, choose=choose).best, plan(run, choose=choose, most=8)
    found = early.best.values["time"]
    assert early.predicted == 8 and early.best.experiment.global_batch == 8192
    assert early.gap > 0 and found * (1 - early.gap) <= best.values["time"]


@pytest.mark.parametrize(
    "layout", [{"microbatches": 4}, {"pipeline": 4, "microbatches": 8}, {"tensor": 4}]
)
def test_batches_are_of_the_plan_whatever_the_layout_of_the_file(layout):
    """With a batch of 256, the 128 replicas of a plain layout have 2 samples each."""
    run = GOYAL.set({f"strategy.{name}": value for name, value in layout.items()})
    run = run.set({"strategy.batch": 64 * layout.get("pipeline", 1) * layout.get("tensor", 1)})
    assert run.global_batch == 8192
    choose = CHOOSE | {"microbatches": [1, 4]}
    assert plan(run, choose=choose).to_columns() == plan(GOYAL, choose=choose).to_columns()


def test_a_batch_that_no_layout_fits_is_left_out():
    found = plan(GOYAL.set({"plan.batch": [100, 260, 8192]}), choose=CHOOSE)
    assert {choice.experiment.global_batch for choice in found.ranked} == {8192}
    assert found.left_out["batch of 260: no layout fits it"] == 1
    wider = plan(GOYAL.set({"plan.batch": [260]}), choose=CHOOSE | {"pipeline": [32]})
    assert wider.best.experiment.global_batch == 260


def test_batches_are_kept_in_a_file():
    assert loads(dumps(GOYAL)).plan.batch == (256, 8192, 65536)
