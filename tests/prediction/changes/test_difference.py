"""Two predictions in words: what differs, by field, and the causes of a step add up to it."""

import math

import pytest

from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.difference import (
    changed_fields,
    changed_words,
    difference_words,
    step_causes,
)
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.spec.experiment import load
from lib_dlhpc.spec.units import format_quantity

GOYAL = load("goyal-2017")


def test_causes_add_up_to_the_step():
    for run in (GOYAL, load("narayanan-2021"), load("deepseek-v3-2048-h800")):
        p = predict(run)
        assert sum(step_causes(p).values()) == pytest.approx(float(p.step_time), rel=1e-9)


def test_fields_that_differ_are_named_with_both_values():
    other = GOYAL.set({"strategy.nodes": 16, "run.epochs": 45.0})
    assert changed_fields(other, GOYAL) == {"strategy.nodes": (32, 16), "run.epochs": (90.0, 45.0)}
    assert changed_words(other, GOYAL) == "nodes 32 → 16, epochs 90 → 45"
    assert changed_words(GOYAL, GOYAL) == ""


def test_a_dropped_rate_comes_last_and_a_kept_one_is_no_difference():
    half = GOYAL.set({"strategy.precision": "fp16"})
    assert changed_words(half, GOYAL).startswith("precision fp32 → fp16, calibration rate 143.0")
    assert changed_words(what_if(GOYAL, {"strategy.nodes": 16}), GOYAL) == "nodes 32 → 16"


def test_another_model_or_machine_is_named_without_its_numbers():
    one, other = load("resnet50@summit"), load("resnet101@abci")
    assert changed_words(other, one) == "model resnet50 → resnet101, machine summit → abci"


def test_fields_of_one_name_are_named_with_their_sections():
    other = GOYAL.set({"strategy.devices_per_node": 4, "machine.devices_per_node": 16})
    words = changed_words(other, GOYAL)
    assert "strategy.devices_per_node 0 → 4" in words and "machine.devices_per_node 8 → 16" in words


def test_many_changes_are_counted():
    other = GOYAL.set({"strategy.nodes": 16, "strategy.batch": 64, "strategy.bucket": 1e6})
    other = other.set({"strategy.overlap": False, "run.seed": 9})
    words = changed_words(other, GOYAL)
    assert words.startswith(
        "nodes 32 → 16, batch 32 → 64, overlap true → false, bucket 25 MB → 1 MB"
    )
    assert words.endswith(" and 2 more")


def test_runs_that_failures_never_let_end_are_compared_without_them():
    long = load("llama3-8b@h100-pod").set({"strategy.nodes": 64, "run.tokens": 1e15})
    slow = predict(long.set({"machine.inter_node.bandwidth": 1e9}))
    words = difference_words(slow, predict(long), "bandwidth")
    times = [each.time_to_train for each in (slow, predict(long))]
    shown = " instead of ".join(format_quantity(float(each), "s") for each in times)
    assert words.endswith(f"Failures let neither run end; without them it takes {shown}.")
    other = predict(long.set({"machine.node_mtbf": math.inf, "machine.inter_node.bandwidth": 1e9}))
    words = difference_words(other, predict(long), "failures")
    assert words.endswith(
        f"Without failures, which only one machine states, the run takes {shown}."
    )
