"""An advice keeps the training, fits, and saves what it says."""

import pytest
from advised import advise

from lib_dlhpc import predict
from lib_dlhpc.convergence.assessment import changed
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.changes.advice import INTERVALS, WORTH, fits, moves, run_time
from lib_dlhpc.prediction.validation.replays import replay, replays
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity

RUNS = [run.name for run in replays()]


@pytest.mark.parametrize("name", RUNS)
def test_an_advice_shortens_the_run_and_no_other_move_shortens_it_more(name):
    now = predict(replay(name).experiment)
    advice = advise(now)
    times = []
    for _, changes in moves(now.experiment):
        try:
            there = predict(what_if(now.experiment, changes))
        except SpecError:
            continue
        assert int(there.experiment.global_batch) == int(now.experiment.global_batch)
        if fits(there):
            times.append(float(there.time_to_train))
    if advice.changes:
        then = predict(what_if(now.experiment, advice.changes))
        assert fits(then) and float(then.time_to_train) == min(times)
        saved = 1 - float(then.time_to_train) / float(now.time_to_train)
        shorter = max(now.terms, key=lambda name: now.terms[name] - then.terms[name])
        assert f"saves {saved:.1%}" in advice.words and shorter in advice.words
        assert advice.label in advice.words
    else:
        assert min(times) >= (1 - WORTH) * float(now.time_to_train)


def test_a_run_that_does_not_fit_is_made_to_fit():
    split = {"tensor": 1, "pipeline": 1, "batch": 1, "microbatches": 1, "recompute": "none"}
    gpt3 = replay("narayanan-2021").experiment.set({f"strategy.{k}": v for k, v in split.items()})
    now = predict(gpt3)
    assert not fits(now)
    advice = advise(now)
    assert "Does not fit" in advice.words and "optimizer state" in advice.words
    assert fits(predict(gpt3.set(advice.changes)))


def test_what_no_change_makes_fit_says_so():
    one = replay("narayanan-2021").experiment.set(
        {
            f"strategy.{field}": 1
            for field in ("nodes", "tensor", "pipeline", "batch", "microbatches")
        }
        | {"strategy.devices_per_node": 1, "strategy.recompute": "none"}
    )
    advice = advise(predict(one))
    assert not advice.changes and "use more devices" in advice.words


DEEPSEEK = "deepseek-v3-2048-h800"


@pytest.mark.parametrize("name", RUNS)
def test_no_move_changes_what_is_learned(name):
    """Precision, formats on the wire, of tokens as well, and all of [training] stay."""
    now = replay(name).experiment
    for label, changes in moves(now):
        try:
            there = now.set(changes)
        except SpecError:
            continue
        assert changed(there, now) == (), label


def test_a_copy_for_each_node_and_light_recomputation_are_advised():
    run = replay(DEEPSEEK).experiment
    direct = run.set({"strategy.expert_exchange": "direct"})
    advice = advise(predict(direct))
    assert advice.changes == {"strategy.expert_exchange": "by-node"}
    assert "expert exchange: by-node" in advice.words
    stored = run.set({"strategy.recompute": "none"})
    advice = advise(predict(stored))
    assert advice.changes == {"strategy.recompute": "light"}
    assert "Does not fit" in advice.words and "recompute: light" in advice.words
    wide = predict(run.set({"strategy.expert_wire": "same"}))
    assert "strategy.expert_wire" not in advise(wide).changes
    assert all("strategy.expert_wire" not in changes for _, changes in moves(wide.experiment))


def test_experts_of_one_replica_are_not_exchanged():
    fields = [field for _, changes in moves(replay("goyal-2017").experiment) for field in changes]
    assert "strategy.expert_exchange" not in fields


def test_a_long_run_without_checkpoints_is_advised_to_write_them():
    """GPT-3 on 128 nodes that fail every 264 days: a failure each two days, a run of two weeks."""
    moved = what_if(replay("narayanan-2021").experiment, {"machine.name": "h100-pod"})
    now = predict(moved)
    assert run_time(now) > 10 * float(now.time_to_train)
    advice = advise(now)
    then = predict(what_if(moved, advice.changes))
    assert set(advice.changes) == {"run.checkpoint_interval", "storage.tier"}
    assert run_time(then) < 1.1 * float(now.time_to_train)
    shown = format_quantity(run_time(then), "s")
    assert advice.label in advice.words and f"The run then takes {shown}." in advice.words
    for interval in INTERVALS:
        for tier in moved.machine.storage:
            other = {"run.checkpoint_interval": interval, "storage.tier": tier}
            assert run_time(predict(what_if(moved, other))) >= run_time(then)


@pytest.mark.parametrize(
    "machine", [{"name": "selene", "node_mtbf": 30.0}, {"name": "laptop", "node_mtbf": 3600.0}]
)
def test_a_run_that_no_checkpoint_ends_is_advised_none(machine):
    """Nodes fail each two seconds, or there is no storage: a time of 1e132 years is no advice."""
    nodes = 16 if machine["name"] == "selene" else 1
    run = Experiment(
        model="resnet50",
        dataset="imagenet",
        machine=machine,
        strategy={"nodes": nodes},
        run={"epochs": 90},
    )
    advice = advise(predict(run))
    assert not advice.changes
    assert "Failures cost nearly all" in advice.words and "No checkpoint" in advice.words


def test_with_checkpoints_or_rare_failures_the_step_is_what_is_shortened():
    moved = what_if(replay("narayanan-2021").experiment, {"machine.name": "h100-pod"})
    for changes in (
        {"run.checkpoint_interval": 4 * 3600.0, "storage.tier": "tectonic"},
        {"machine.node_mtbf": 1e10},
    ):
        assert "step" in advise(predict(what_if(moved, changes))).words
