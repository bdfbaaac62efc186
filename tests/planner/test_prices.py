"""Prices of many layouts at once are those of predictions of each."""

import random

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner.prices import predicted
from lib_dlhpc.planner.search_space import changes_of, space
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import Experiment

EXACT = ("step_time", "time_to_train", "energy_to_train", "device_hours", "memory_total")
TERMS = ("forward", "backward", "recomputation", "update", "straggler_wait", "pipeline_bubble")
TERMS += ("exposed_communication", "input_stall", "checkpoint")
GPT = {
    "family": "gpt",
    "layers": 8,
    "hidden": 2048,
    "heads": 8,
    "sequence": 512,
    "vocabulary": 4096,
}
SMALL = {"nodes": 2, "devices_per_node": 4, "batch": 4, "precision": "bf16", "optimizer": "adam"}
LARGE = {"nodes": 128, "tensor": 8, "batch": 12, "precision": "fp16", "optimizer": "adam"}


def found_of(run, columns):
    """Return what is found of each row: a prediction of arrays and a place in it, bytes, or an error."""
    found = {}
    for rows, one in predicted(run, columns):
        for place, row in enumerate(rows.tolist()):
            assert row not in found
            found[row] = one, place
    return found


def at(values, place):
    return values[place] if np.ndim(values) else values


def check(run, columns, rows):
    """Compare some rows with predictions, all of their terms with the step; return how many fit."""
    found, fitting = found_of(run, columns), 0
    assert found.keys() == set(range(len(columns["data"])))
    for row in rows:
        one, place = found[row]
        try:
            expected = predict(run.set(changes_of(columns, row)))
        except SpecError as error:
            assert str(one) == str(error)
            continue
        if isinstance(one, dict):
            total = sum(float(each[place]) for each in one.values())
            assert not expected.fits and total == pytest.approx(expected.memory_total, rel=1e-12)
            continue
        fitting += 1
        assert expected.fits == at(one.fits, place)
        for name in (*EXACT, *TERMS):
            value = float(at(getattr(one, name), place))
            least = 0.0 if name in EXACT else 1e-12 * float(expected.step_time)
            assert value == pytest.approx(float(getattr(expected, name)), rel=1e-12, abs=least), (
                name
            )
    return fitting


@pytest.mark.parametrize(
    ("machine", "more", "choose"),
    [
        ("selene", {}, {}),
        ("h100-pod", {"overlap": False}, {"zero": [0, 2], "recompute": ["none", "full"]}),
        ("summit", {"precision": "fp16"}, {"context": [1, 2], "shards": [0, 2], "zero": [1, 3]}),
        (
            "selene",
            {},
            {"offload": ["none", "all"], "gather": ["usual", "forward"], "zero": [0, 3]},
        ),
        (
            "h100-pod",
            {},
            {"tensor": [1, 2, 4], "tensor_pieces": [1, 2, 4], "zero": [0, 3], "spatial": [1]},
        ),
    ],
)
def test_a_random_sample_of_a_space_is_priced_as_it_is_predicted(machine, more, choose):
    run = Experiment(model=GPT, machine=machine, strategy=SMALL | more)
    run = run.set({"machine.jitter": 0.02})
    every, dice = space(run, choose), random.Random(machine)
    some = sorted(dice.sample(range(len(every)), min(80, len(every))))
    columns = {name: each[some] for name, each in every.columns.items()}
    assert check(run, columns, dice.sample(range(len(some)), 25)) > 10


def test_stages_that_lie_differently_on_nodes_are_priced_as_they_are_predicted():
    own = {"nodes": 3, "devices_per_node": 4, "batch": 12}
    run = Experiment(model=GPT, machine={"name": "selene", "nics": 1}, strategy=SMALL | own)
    choose = {"pipeline": [4], "tensor": [1], "spatial": [1], "zero": [0, 3], "microbatches": [4]}
    every = space(run, choose | {"recompute": ["none"]})
    assert check(run, every.columns, range(min(12, len(every)))) > 2


def test_gradients_added_in_32_bits_are_priced_as_they_are_predicted():
    """One microbatch adds nothing: its buckets are cast, and its gradients take two bytes."""
    run = Experiment(model=GPT, machine="selene", strategy=SMALL | {"wire": "fp32"})
    choose = {"pipeline": [1, 2], "microbatches": [1, 2, 4], "zero": [1], "tensor": [1, 2]}
    every = space(run, choose | {"recompute": ["none"], "spatial": [1]})
    assert check(run, every.columns, range(len(every))) > 10


def test_microbatches_from_both_ends_are_priced_as_they_are_predicted():
    run = Experiment(model=GPT, machine="selene", strategy=SMALL | {"batch": 16})
    choose = {"pipeline": [1, 2, 4], "schedule": ["zb-h1", "dualpipe"], "zero": [0, 3]}
    every, dice = space(run, choose), random.Random(3)
    rows = [r for r in range(len(every)) if every.columns["schedule"][r] == "dualpipe"]
    assert check(run, every.columns, dice.sample(rows, min(20, len(rows)))) > 10


@pytest.mark.parametrize("schedules", [["dualpipe"], ["1f1b", "dualpipe"], ["dualpipe", "1f1b"]])
def test_experts_whose_passes_overlap_are_priced_as_they_are_predicted(schedules):
    """Also beside layouts whose passes do not overlap."""
    model = GPT | {"experts": 8, "chosen": 2}
    run = Experiment(model=model, machine="selene", strategy=SMALL | {"batch": 16})
    choose = {"pipeline": [2, 4], "schedule": schedules, "zero": [0], "experts": [2]}
    every = space(run, choose | {"tensor": [1], "recompute": ["none"]})
    overlap = np.flatnonzero(every.columns["schedule"] == "dualpipe").tolist()
    assert check(run, every.columns, [*range(6), *overlap[-6:]]) > 6


def test_a_network_with_fewer_layers_than_stages_is_not_legal():
    split = {"pipeline": 4, "chunks": 4, "schedule": "interleaved", "microbatches": 4}
    run = Experiment(model={"family": "lenet5"}, machine="selene", strategy=SMALL | split)
    every = space(run, {"tensor": [1], "spatial": [1], "zero": [0], "recompute": ["none"]})
    few = np.flatnonzero(every.columns["pipeline"] * every.columns["chunks"] == 16).tolist()
    assert few and check(run, every.columns, few) == 0


def test_experts_are_priced_as_they_are_predicted():
    model = GPT | {"experts": 8, "chosen": 2}
    run = Experiment(model=model, machine="selene", strategy=SMALL)
    choose = {"experts": [1, 2, 4], "zero": [0], "tensor": [1, 2], "recompute": ["none", "full"]}
    every, dice = space(run, choose), random.Random(2)
    assert check(run, every.columns, dice.sample(range(len(every)), 25)) > 10


def test_copies_by_node_and_light_recomputation_are_priced_as_they_are_predicted():
    """Of every kind of cluster in turn: what crosses the network depends on how many replicas a node has."""
    model = GPT | {"experts": 8, "chosen": 2}
    run = Experiment(model=model, machine="selene", strategy=SMALL)
    choose = {
        "experts": [4, 8],
        "expert_exchange": ["direct", "by-device", "by-node"],
        "zero": [0, 1],
    }
    choose |= {"tensor": [1], "recompute": ["none", "light"], "nodes": [2, 4]}
    every, dice = space(run, choose), random.Random(4)
    copies = every.columns["expert_exchange"] == "by-node"
    rows = dice.sample(range(len(every)), 10) + dice.sample(np.flatnonzero(copies).tolist(), 15)
    assert check(run, every.columns, rows) > 10


def test_gpt3_on_1024_devices_is_priced_as_it_is_predicted():
    run = Experiment(model="gpt3-175b", machine="selene", strategy=LARGE)
    every, dice = space(run), random.Random(1)
    some = sorted(dice.sample(range(len(every)), 60))
    columns = {name: each[some] for name, each in every.columns.items()}
    assert check(run, columns, range(0, 60, 3)) > 3


def test_progress_counts_every_layout():
    run = Experiment(model=GPT, machine="selene", strategy=SMALL)
    every, counted = space(run, {"zero": [0], "tensor": [1, 2]}), []
    for _ in predicted(run, every.columns, counted.append):
        pass
    assert sum(counted) == len(every)


def test_a_question_is_answered_as_if_none_had_been_asked_before():
    """What is remembered of layouts with the same passes does not depend on which of them was asked for first."""
    run, other = (Experiment(model=GPT, machine="selene", strategy=SMALL) for _ in range(2))
    every, dice = space(run, {"zero": [0, 1], "tensor": [2], "spatial": [1]}), random.Random(5)
    some = sorted(dice.sample(range(len(every)), 16))
    first, columns = (
        {name: each[rows] for name, each in every.columns.items()} for rows in (some[::-2], some)
    )
    found_of(run, first)
    again, alone = found_of(run, columns), found_of(other, columns)
    for row, (one, place) in again.items():
        same, there = alone[row]
        if isinstance(one, dict):
            assert [at(each, place) for each in one.values()] == pytest.approx(
                [at(each, there) for each in same.values()], rel=1e-12
            )
        else:
            values = (at(each.step_time, where) for each, where in ((one, place), (same, there)))
            assert next(values) == pytest.approx(next(values), rel=1e-12)
