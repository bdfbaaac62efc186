"""Batch and lossy settings as choices of a plan: time and energy to the target, refusals where nobody measured."""

import pytest

from lib_dlhpc.convergence import epochs_of
from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner import candidates, plan
from lib_dlhpc.planner.search_space import axes_of
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.accuracy import to_accuracy
from lib_dlhpc.scale_out import place
from lib_dlhpc.spec.experiment import Experiment, dumps, loads
from lib_dlhpc.spec.planning import AXES, SETTINGS
from lib_dlhpc.studies.accuracy_costs import experiment as measured_run

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
    (reason,) = found.refused
    assert "65,536" in reason and "beyond 8,192" in reason
    assert found.reasons[0] == reason and reason in found.left_out
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
        ([130], "1: batch of 130: no layout fits"),
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
    best, early = plan(run, choose=choose).best, plan(run, choose=choose, most=1)
    found = early.best.values["time"]
    assert early.predicted == 1 and early.best.experiment.global_batch == 8192
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
    assert found.left_out["batch of 260: no layout fits"] == 1
    wider = plan(GOYAL.set({"plan.batch": [260]}), choose=CHOOSE | {"pipeline": [32]})
    assert wider.best.experiment.global_batch == 260


# --- the run of the file, with a target and no other choice ---


def test_the_run_of_the_file_trains_for_the_epochs_that_it_needs():
    found = plan(GOYAL.set({"plan.batch": [], "run.epochs": 3.0}), choose=CHOOSE)
    assert found.accuracy.startswith("ResNet-50 on ImageNet")
    for choice in found.ranked:
        assert choice.experiment.run.epochs == 90
        assert choice.values["time"] == pytest.approx(to_accuracy(choice.prediction).time.median)


def test_a_run_of_the_file_that_misses_its_target_has_no_plan():
    run = GOYAL.set({"plan.batch": [], "strategy.batch": 512})
    with pytest.raises(SpecError, match=r"^run\.target = 0\.76: 65,536 is beyond 8,192"):
        plan(run, choose=CHOOSE)
    many = CHOOSE | {"microbatches": [8]}
    assert plan(run.set({"run.target": 0.0}), choose=many).accuracy == ""


def test_a_run_of_the_file_that_nobody_measured_keeps_its_epochs_and_is_not_assessed():
    run = GOYAL.set({"plan.batch": [], "strategy.optimizer": "adam", "run.epochs": 7.0})
    found = plan(run, choose=CHOOSE)
    assert found.accuracy.startswith("accuracy not assessed: nothing measured for resnet50")
    assert {choice.experiment.run.epochs for choice in found.ranked} == {7.0}


def test_batches_are_kept_in_a_file():
    assert loads(dumps(GOYAL)).plan.batch == (256, 8192, 65536)


# --- settings that change accuracy ---

MNIST = Experiment(
    model={"family": "mlp", "widths": [784, *[128] * 5, 10]},
    dataset="mnist-5k",
    machine={"name": "laptop", "devices_per_node": 8},
    strategy={"devices_per_node": 4, "batch": 32},
    training={"base_batch": 32},
    run={"target": 0.93},
)
FEW = {"tensor": [1], "spatial": [1], "pipeline": [1], "microbatches": [1], "zero": [0]}
DILOCO = {"local_steps": [1, 16], "outer_rate": [1.0, 0.7], "outer_momentum": [0.0, 0.9]}


def planned(run, **axes):
    return plan(run, choose=FEW | axes)


def test_a_setting_is_offered_if_its_measured_cost_is_within_reach_of_the_target():
    found = planned(MNIST, sparsity=[0.0, 0.99])
    assert {choice.changes["training.sparsity"] for choice in found.ranked} == {0.0, 0.99}
    for choice in found.ranked:
        reached = to_accuracy(choice.prediction)
        assert choice.values["time"] == pytest.approx(reached.time.median, rel=1e-12)
        assert choice.values["energy"] == pytest.approx(reached.energy.median, rel=1e-12)
    sparse = next(c for c in found.ranked if c.changes["training.sparsity"])
    assert "sparsity 0.99" in sparse.words and sparse.experiment.training.sparsity == 0.99


def test_a_planned_sparsity_is_the_run_that_was_measured():
    """With 0.99, the sparsity of MNIST rose over four epochs; a file that has another warm-up is refused."""
    best = planned(MNIST, sparsity=[0.99]).best.experiment
    measured = measured_run("training.sparsity", 0.99).training
    assert loads(dumps(best)).training.sparsity_warm_up == measured.sparsity_warm_up == 4
    assert best.training.sparsity == measured.sparsity
    assert best.run.epochs == 20 and predict(best).warm_up > 0
    own = MNIST.set({"training.sparsity": 0.99, "training.sparsity_warm_up": 1.0})
    with pytest.raises(SpecError, match="rising over 4 epochs, not 1"):
        planned(own)
    assert planned(own, sparsity=[0.99]).best.experiment.training == best.training


def test_where_its_cost_is_not_within_reach_it_is_refused_with_the_measured_figure():
    found = planned(MNIST.set({"run.target": 0.945}), sparsity=[0.0, 0.99])
    assert {choice.changes["training.sparsity"] for choice in found.ranked} == {0.0}
    (reason,) = (each for each in found.left_out if "sparsity = 0.99" in each)
    assert "costs at most" in reason and "points" in reason and "4 workers" in reason
    with pytest.raises(SpecError, match=r"every setting is refused: .*costs at most"):
        planned(MNIST.set({"run.target": 0.945}), sparsity=[0.99])


@pytest.mark.parametrize(
    ("changes", "axes", "reason"),
    [
        ({}, {"sparsity": [0.0, 0.5]}, "0.5 by 4 workers was not measured"),
        ({}, {"sparsity": [0.0, 0.9995]}, "0.9995 by 4 workers was not measured"),
        ({}, {"local_steps": [1, 64]}, "local_steps = 64 by 4 workers was not measured"),
        ({}, {"precision": ["fp32", "bf16"]}, "precision = bf16 was not measured"),
        ({"strategy.devices_per_node": 8}, {"sparsity": [0.0, 0.99]}, "by 8 workers was not"),
        ({"strategy.batch": 16}, {"sparsity": [0.0, 0.99]}, "measured at a batch of 128"),
        ({}, {"sparsity": [0.0, 0.99], "low_rank": [0, 2]}, "training.sparsity above 0"),
    ],
)
def test_beyond_what_was_measured_nothing_is_offered(changes, axes, reason):
    found = planned(MNIST.set(changes), **axes)
    assert any(reason in each for each in found.left_out), found.left_out
    for choice in found.ranked:
        assert to_accuracy(choice.prediction).known


def test_another_workload_keeps_its_settings_and_is_not_assessed():
    run = MNIST.set({"model.widths": [784, 64, 10]})
    axes = {"sparsity": [0.0, 0.99], "local_steps": [1, 4], "precision": ["fp32", "bf16"]}
    found = planned(run, **axes)
    assert found.accuracy.startswith("accuracy not assessed: nothing measured for mlp")
    assert {
        (c.experiment.training.sparsity, c.experiment.strategy.local_steps) for c in found.ranked
    } == {(0.0, 1)}
    assert {choice.experiment.strategy.precision for choice in found.ranked} == {"fp32"}
    assert any("training.sparsity must stay as in the file" in each for each in found.left_out)


MIXTURE = Experiment(
    model={
        "family": "decoder",
        "layers": 2,
        "hidden": 64,
        "sequence": 32,
        "vocabulary": 64,
        "attention": {"heads": 4},
        "feed_forward": {"features": 96},
        "experts": {"experts": 16, "chosen": 4, "features": 32},
    },
    dataset="words",
    machine="h800-pod",
    strategy={
        "nodes": 2,
        "devices_per_node": 4,
        "batch": 4,
        "experts": 8,
        "precision": "fp8",
        "optimizer": "adam",
    },
)


@pytest.mark.parametrize("target", [0.0, 0.5])
@pytest.mark.parametrize("own", ["same", "fp8"])
def test_tokens_in_fp8_stay_as_in_the_file_where_nobody_measured_them(own, target):
    """As a precision does; how many copies travel changes no number, and is free to vary."""
    run = MIXTURE.set({"strategy.expert_wire": own, "run.target": target})
    found = planned(run, expert_wire=["same", "fp8"], expert_exchange=["direct", "by-node"])
    assert {choice.experiment.strategy.expert_wire for choice in found.ranked} == {own}
    ways = {choice.experiment.strategy.expert_exchange for choice in found.ranked}
    assert ways == {"direct", "by-node"}
    (reason,) = (each for each in found.left_out if "strategy.expert_wire must stay" in each)
    assert "accuracy not assessed" in reason and "accuracy not assessed" in found.accuracy
    assert found.best.words.count("by-node exchange") == (
        found.best.experiment.strategy.expert_exchange == "by-node"
    )


def test_tokens_in_fp8_are_a_lossy_setting_beside_a_target():
    reason = epochs_of(
        MNIST.set({"strategy.expert_wire": "fp8", "strategy.precision": "fp8"})
    ).reason
    assert "strategy.expert_wire = fp8" in reason and "not measured together" in reason
    bf16 = MIXTURE.set({"strategy.precision": "bf16"})
    found = planned(bf16, expert_wire=["same", "fp8"])
    assert any("legal with strategy.precision = 'fp8'" in each for each in found.left_out)


def test_local_steps_and_an_outer_optimizer_are_measured_together():
    found = planned(MNIST.set({"run.target": 0.9}), **DILOCO)
    kept = {
        (c.changes["strategy.local_steps"], c.changes["training.outer_rate"]) for c in found.ranked
    }
    assert {(1, 1.0), (16, 1.0)} <= kept
    assert any("outer rate of 0.7 and momentum of 0 " in each for each in found.left_out)
    for choice in found.ranked:
        assert choice.experiment.strategy.update == (
            "local" if choice.changes["strategy.local_steps"] > 1 else "synchronous"
        )
        assert to_accuracy(choice.prediction).known


def test_runs_that_were_measured_by_workers_have_a_replica_on_each_device():
    axes = {"tensor": [1, 2], "zero": [0, 1], "sparsity": [0.0, 0.99]}
    found = planned(MNIST, **axes)
    sparse = [c for c in found.ranked if c.changes["training.sparsity"]]
    assert {(c.changes["strategy.tensor"], c.changes["strategy.zero"]) for c in sparse} == {(1, 0)}
    assert {c.changes["strategy.tensor"] for c in found.ranked} == {1, 2}
    only = planned(MNIST, **{**axes, "tensor": [2]})
    assert any("sparsity = 0.99: plan.axes.tensor: only 1 is" in each for each in only.left_out)


def test_a_setting_is_offered_on_the_nodes_whose_workers_were_measured():
    run = MNIST.set({"machine.nodes": 2})
    found = planned(run, nodes=[1, 2], sparsity=[0.0, 0.99])
    kept = {(c.changes["training.sparsity"], c.experiment.strategy.nodes) for c in found.ranked}
    assert kept == {(0.0, 1), (0.0, 2), (0.99, 1)}
    assert any(
        "sparsity = 0.99, 2 nodes: " in each and "8 workers" in each for each in found.left_out
    )


def test_settings_are_kept_in_a_file():
    run = MNIST.set({"plan.axes": {"sparsity": [0.0, 0.99], "wire": ["same", "fp8"]}})
    assert loads(dumps(run)).plan.axes == run.plan.axes
    with pytest.raises(SpecError, match=r"plan\.axes\.wire"):
        MNIST.set({"plan.axes": {"wire": ["fp4"]}})


# --- a plan of its own result ---

NETWORK = {"family": "gpt", "layers": 4, "hidden": 64, "heads": 4}
GPT = Experiment(
    model=NETWORK | {"sequence": 16, "vocabulary": 64},
    dataset="words",
    machine={"name": "laptop", "devices_per_node": 4, "nodes": 2},
    strategy={"nodes": 1, "devices_per_node": 4, "batch": 4},
)
SMALL = {"tensor": [1, 2], "spatial": [1], "pipeline": [1, 2], "microbatches": [1, 2]}
SMALL |= {"schedule": ["1f1b"], "chunks": [1], "zero": [0, 1], "recompute": ["none"]}
WIDE = {  # axes whose values beside the default one are not small numbers
    "schedule": ["1f1b", "gpipe"],
    "chunks": {"most": 2},
    "recompute": ["none", "full"],
    "sequence_parallel": [False, True],
    "experts": [1],
    "expert_exchange": ["direct", "by-node"],
    "shards": [0, 2],
    "gather": ["usual", "forward"],
    "zero_unit": ["block", "layer"],
    "offload": ["none", "activations"],
    "allreduce": ["auto", "ring"],
    "overlap": [False, True],
    "bucket": [1e6, 25e6],
    "stage_cut": ["blocks", "work"],
    "power_limit": [0.0, 10.0],
    "spatial": {"most": 4},
    "zero": {"least": 1, "most": 3},
}
LOSSY = {  # each so that the lossy value is the best one
    "precision": {"precision": ["fp32"]},
    "wire": {"wire": ["fp8", "bf16"]},
    "expert_wire": {"expert_wire": ["same", "fp8"]},
    "sparsity": {"sparsity": [0.0, 0.99]},
    "low_rank": {"low_rank": [0, 4]},
    "local_steps": {"local_steps": [1, 4, 16]},
    "outer_rate": {"local_steps": [16], "outer_rate": [0.5], "outer_momentum": [0.5]},
    "outer_momentum": {"local_steps": [16], "outer_rate": [0.7], "outer_momentum": [0.9]},
}


def again(found):
    """Plan the best as it is written to a file, and return both."""
    best = loads(dumps(found.best.experiment))
    assert best == found.best.experiment
    return plan(best).best, found.best


def test_gradients_in_32_bits_leave_all_layouts_and_what_is_learned():
    """They lose nothing: layouts with ZeRO and with tensor ranks are planned, as without (PyTorch's reduce_dtype)."""
    machine = {"strategy.precision": "bf16", "machine.device.peak.bf16": 1e12}
    run = GPT.set(machine)
    wide, usual = (
        plan(
            each, choose=SMALL | {"zero": [0, 1, 3], "experts": [1, 2], "offload": ["none", "all"]}
        )
        for each in (run.set({"strategy.wire": "fp32"}), run)
    )
    found = {
        (choice.changes["strategy.zero"], choice.changes["strategy.tensor"])
        for choice in wide.ranked
    }
    assert {zero for zero, _ in found} >= {0, 1, 3} and {tensor for _, tensor in found} == {1, 2}
    assert any("format on the wire" in reason for reason in wide.left_out)
    assert wide.accuracy == usual.accuracy
    for choice in wide.ranked:
        assert choice.prediction.step_time == pytest.approx(predict(choice.experiment).step_time)


@pytest.mark.parametrize("name", AXES)
def test_the_best_along_each_axis_of_a_layout_is_planned_again(name):
    choose = SMALL | {name: WIDE.get(name, [1, 2])}
    second, first = again(plan(GPT, choose=choose))
    assert second.experiment == first.experiment and second.values == first.values


@pytest.mark.parametrize("own", [1, 2])
@pytest.mark.parametrize("asked", [[1], [2], [1, 2]])
def test_the_layouts_on_some_nodes_are_those_of_any_file(own, asked):
    """A saved best is on other nodes than the file that was planned, and has the same layouts."""
    layout = {"strategy.nodes": own, "strategy.batch": 4 // own, "model.layers": 8}
    run = GPT.set({**layout, "plan.axes.nodes": asked})
    assert axes_of(run)["pipeline"] == ([1, 2, 4, 8] if 2 in asked else [1, 2, 4])


@pytest.mark.parametrize("name", SETTINGS)
def test_the_best_along_each_lossy_axis_is_planned_again(name):
    run = MNIST.set({"machine.intra_node.bandwidth": 1e8, "run.target": 0.9})
    second, first = again(planned(run, **LOSSY[name]))
    assert second.experiment == first.experiment and second.values == first.values
    table, field = SETTINGS[name].split(".")
    lossy = getattr(getattr(first.experiment, table), field)
    assert name in ("precision", "expert_wire") or lossy != getattr(getattr(run, table), field)


@pytest.mark.parametrize("stopped_in", ["bounds", "predictions"])
def test_a_plan_of_several_batches_goes_on_where_it_was_stopped(stopped_in, tmp_path, monkeypatch):
    chunk, done = candidates.chunk, []
    where = place("here", tmp_path / "work")

    def counted(arguments, number):
        done.append(number)
        return chunk(arguments, number)

    def ended(arguments, number):
        if number == len(done) - 1 and stopped_in == "bounds":
            raise KeyboardInterrupt
        return chunk(arguments, number)

    def progress(tried, of):
        raise KeyboardInterrupt

    monkeypatch.setattr(candidates, "SIZE", 5)
    monkeypatch.setattr(candidates, "chunk", counted)
    whole = plan(GOYAL, choose=CHOOSE)
    assert done == [*range(len(done))] and len(done) > 4
    monkeypatch.setattr(candidates, "chunk", ended)
    with pytest.raises(KeyboardInterrupt):
        plan(GOYAL, choose=CHOOSE, where=where, progress=progress)
    monkeypatch.setattr(candidates, "chunk", counted)
    last = done[-1:] if stopped_in == "bounds" else []
    done.clear()
    found = plan(GOYAL, choose=CHOOSE, where=where)
    assert done == last and not (tmp_path / "work").exists()
    assert found.to_columns() == whole.to_columns() and found.left_out == whole.left_out
