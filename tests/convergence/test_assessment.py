"""Settings that change accuracy: what they cost where it was measured, and a refusal where it was not."""

import numpy as np
import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.convergence import changed, epochs_of, verdict
from lib_dlhpc.convergence.accuracy_costs import stored
from lib_dlhpc.convergence.assessment import cost_of, measured_warm_up
from lib_dlhpc.convergence.workloads import find, read
from lib_dlhpc.spec.strategy import OPTIMIZERS

BASE = Experiment(
    model="resnet50",
    machine="summit",
    strategy={"nodes": 32, "devices_per_node": 4, "batch": 64},
    run={"target": 0.76},
)
MNIST = Experiment(
    model={"family": "mlp", "widths": [784, *[128] * 5, 10]},
    dataset="mnist-5k",
    machine="laptop",
    strategy={"devices_per_node": 1, "batch": 128},
    training={"base_batch": 32},
    run={"target": 0.93},
)
GPT = Experiment(model="gpt3-175b", machine="selene", strategy={"optimizer": "adam"})
FOUR = {"machine.devices_per_node": 4, "strategy.devices_per_node": 4, "strategy.batch": 32}
LOCAL = {"strategy.update": "local", "strategy.local_steps": 4}
RISING = {"training.sparsity_warm_up": 4.0}  # as every sparsity was measured


def sparse(value):
    return {"training.sparsity": value, **RISING}


def test_an_experiment_finds_its_workload():
    assert find(BASE).name == "imagenet-resnet50-momentum"
    assert find(BASE.set({"strategy.optimizer": "lars"})).name == "imagenet-resnet50-lars"
    assert find(MNIST).name == "mnist-linear"
    assert find(MNIST.set({"training.base_batch": 0})).name == "mnist-momentum"
    assert find(BASE.set({"model.name": "resnet101"})) is None
    assert find(GPT) is None


def test_goyals_hour_is_answered_and_its_64_k_refused():
    assert epochs_of(BASE)[:3] == (90, 90, 90)
    found = epochs_of(BASE.set({"strategy.batch": 512}))
    assert not found.known and "65,536 is beyond 8,192" in found.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"strategy.wire": "fp8"}, "wire = fp8 was not measured"),
        ({"strategy.precision": "bf16"}, "precision = bf16 was not measured"),
        ({"strategy.update": "asynchronous"}, "update = asynchronous was not measured"),
        (LOCAL, "local_steps = 4 was not measured"),
        ({"training.sparsity": 0.9999}, "0.9999 was not measured"),
        ({"training.sparsity": 0.99}, "sparsity = 0.99 was not measured"),
        ({"training.low_rank": 4}, "low_rank = 4 was not measured"),
        ({**LOCAL, "strategy.precision": "fp16"}, "not measured together"),
        ({"training.rate": 0.4}, "measured with a rate of 0.1 for 256"),
        ({"strategy.optimizer": "adam"}, "nothing measured for resnet50 on imagenet with adam"),
        ({"run.target": 0.0}, "no run.target"),
    ],
)
def test_what_nobody_measured_is_not_assessed(changes, reason):
    changes = {"machine.device.peak.bf16": 1e14, **changes}
    found = epochs_of(BASE.set(changes))
    assert not found.known and reason in found.reason and "not assessed" in found.reason


def test_a_measured_setting_is_answered():
    assert epochs_of(BASE.set(sparse(0.999))).epochs == 90
    assert epochs_of(BASE.set({"strategy.precision": "fp16"})).epochs == 90
    assert epochs_of(BASE.set({"training.rate": 0.1})).epochs == 90


def test_a_cost_raises_the_target():
    """What compression costs on MNIST must be left over: at a target just within reach it is refused."""
    work, compressed = read("mnist-linear"), MNIST.set(sparse(0.999))
    cost, reason = cost_of(compressed, work)
    assert 0 < cost < 0.2 and "points" in reason
    reached = float(np.median(next(r["accuracy"] for r in work.runs if r["batch"] == 128)))
    for room, known in ((1.01, True), (0.99, False)):
        at = {"run.target": reached - room * cost}
        assert epochs_of(compressed.set(at)).known == known
        assert epochs_of(MNIST.set(at)).known


@pytest.mark.parametrize("run", [BASE, MNIST], ids=["Lin et al.", "MNIST"])
@pytest.mark.parametrize("epochs", [0.0, 3.0])
def test_a_sparsity_is_assessed_with_the_warm_up_that_was_measured_alone(run, epochs):
    at = run.set({**sparse(0.999), "run.target": 0.7})
    assert epochs_of(at).known and measured_warm_up(at) == 4
    found = epochs_of(at.set({"training.sparsity_warm_up": epochs}))
    assert not found.known and f"rising over 4 epochs, not {epochs:g}" in found.reason
    assert measured_warm_up(GPT) is None


def test_between_two_measured_strengths_the_dearer_counts():
    """On MNIST, 90% of the gradients left out cost more than 99%: a stronger setting is no bound."""
    work = read("mnist-linear")
    at = {s: cost_of(MNIST.set(sparse(s)), work)[0] for s in (0.9, 0.95, 0.99, 0.999)}
    assert at[0.95] == at[0.9] > at[0.999] > at[0.99] > 0
    assert cost_of(MNIST.set({"training.low_rank": 2}), work)[0] > 0
    eight = {**FOUR, "strategy.update": "local", "strategy.local_steps": 8}
    assert 0 < cost_of(MNIST.set(eight), work)[0] < 0.02
    for beyond in (0.5, 0.9995):
        assert np.isnan(cost_of(MNIST.set(sparse(beyond)), work)[0])


def test_between_two_numbers_of_workers_the_dearer_counts():
    work, at = read("mnist-linear"), {}
    for workers in (1, 2, 4, 8):
        each = {"machine.devices_per_node": workers, "strategy.devices_per_node": workers}
        run = MNIST.set({**each, "strategy.batch": 128 // workers, **sparse(0.9)})
        at[workers] = cost_of(run, work)[0]
    assert at[2] == max(at[1], at[4]) > 0 and np.isnan(at[8])
    low = MNIST.set({**FOUR, "training.low_rank": 2})  # linear: for any number of workers
    assert cost_of(low, work)[0] == cost_of(MNIST.set({"training.low_rank": 2}), work)[0]


def test_stale_gradients_are_assessed_by_workers_at_the_batch_of_one():
    work = read("mnist-linear")
    stale = {"machine.nodes": 2, "machine.devices_per_node": 8, "strategy.update": "asynchronous"}
    costs = [
        cost_of(MNIST.set({**stale, "strategy.devices_per_node": workers}), work)[0]
        for workers in (2, 4, 8)
    ]
    assert 0.02 < costs[0] < costs[1] and costs[2] > costs[0]
    at = {**stale, "strategy.devices_per_node": 2, "run.target": 0.5}
    assert epochs_of(MNIST.set(at)).epochs == 20
    for changes in ({"strategy.batch": 64}, {"strategy.staleness": 1}):
        assert not epochs_of(MNIST.set(at | changes)).known


def test_an_outer_optimizer_is_measured_with_its_local_steps():
    work, outer = read("mnist-linear"), {"training.outer_rate": 0.7, "training.outer_momentum": 0.9}
    local = {**FOUR, "strategy.update": "local", "strategy.local_steps": 16}
    plain, both = (cost_of(MNIST.set({**local, **more}), work)[0] for more in ({}, outer))
    assert np.isfinite(both) and both != plain
    cost, reason = cost_of(MNIST.set({**local, "training.outer_rate": 0.7}), work)
    assert np.isnan(cost) and "outer rate of 0.7 and momentum of 0" in reason


def test_an_array_of_batches_is_answered_where_the_setting_was_measured():
    batches = np.array([64, 128, 256])
    at = {"run.target": 0.92, **sparse(0.99), "strategy.batch": batches}
    found = epochs_of(MNIST.set(at))
    np.testing.assert_array_equal(found.known, [False, True, False])
    assert "measured at a batch of 128" in found.reason


def test_the_costs_are_the_stored_runs():
    runs: dict = {}
    for run in stored():
        runs.setdefault(run[:5], {})[run.seed] = run.accuracy
    whole = runs.pop(("training.sparsity", 0.0, 1, 1.0, 0.0))
    rows = read("mnist-linear").costs
    assert len(rows) == len(runs)
    for row in rows:
        key = row["setting"], row["value"], row.get("workers", 1), *row["outer"]
        wanted = [runs[key][seed] - whole[seed] for seed in sorted(whole)]
        np.testing.assert_allclose(row["change"], wanted, atol=1e-9)


# --- plans ---


def test_with_a_target_a_plan_is_offered_if_measurements_say_that_it_meets_it():
    batches = np.array([1, 64, 65, 512])
    found = verdict(BASE.set({"strategy.batch": batches}), BASE)
    np.testing.assert_array_equal(found.offered, [True, True, False, False])


def test_where_nothing_was_measured_batch_and_settings_stay():
    plan = GPT.set({"strategy.tensor": 8, "strategy.zero": 1})
    same = verdict(plan, GPT.set({"strategy.nodes": 8}))
    assert not same.offered  # another batch: devices of tensor parallelism are no replicas
    plan = GPT.set({"strategy.recompute": "full", "strategy.zero": 1})
    same = verdict(plan, GPT)
    assert same.offered and "accuracy not assessed" in same.reason
    for changes in (
        {"strategy.batch": 128_512},
        {"strategy.precision": "bf16"},
        {"training.warm_up": 3.0},
        LOCAL,
        {"training.low_rank": 2, "strategy.optimizer": "sgd"},
    ):
        assert not verdict(GPT.set(changes), GPT).offered, changes
    found = verdict(GPT.set({"strategy.batch": np.array([32, 64])}), GPT)
    np.testing.assert_array_equal(found.offered, [True, False])


def test_what_changes_accuracy_is_named():
    other = BASE.set(
        {"strategy.precision": "fp16", "strategy.batch": 32, "strategy.overlap": False}
    )
    assert changed(BASE, other) == ("strategy.precision", "batch")
    assert changed(BASE, BASE.set({"strategy.zero": 1, "training.collective": "mpi"})) == ()
    for rule in set(OPTIMIZERS) - {"momentum"}:
        assert changed(BASE, BASE.set({"strategy.optimizer": rule})) == ("strategy.optimizer",)


def test_arrays_of_settings_are_scalars_one_by_one():
    given = {"run.target": np.array([0.7, 0.76, 0.8]), "strategy.batch": np.array([[64], [512]])}
    found = epochs_of(BASE.set(given))
    for at in np.ndindex(2, 3):
        one = {name: np.broadcast_to(value, (2, 3))[at] for name, value in given.items()}
        np.testing.assert_array_equal(found.epochs[at], epochs_of(BASE.set(one)).epochs)
