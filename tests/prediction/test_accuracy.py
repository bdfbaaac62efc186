"""Time and energy to an accuracy: epochs times what an epoch costs, with the interval of the epochs."""

import json

import numpy as np
import pytest

from lib_dlhpc import Experiment, predict
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.prediction.reports.report import as_dict, as_text

GOYAL = Experiment(
    model="resnet50",
    machine="summit",
    strategy={"nodes": 32, "devices_per_node": 4, "batch": 64},
    run={"target": 0.76},
)
MNIST = Experiment(
    model={"family": "mlp", "widths": [784, *[128] * 5, 10]},
    dataset="mnist-5k",
    machine="laptop",
    strategy={"devices_per_node": 1, "batch": 48},
    run={"target": 0.9},
)


@pytest.mark.parametrize("run", [GOYAL, MNIST])
def test_the_way_to_a_target_is_a_run_of_that_many_epochs(run):
    found = predict(run).to_accuracy
    for epochs, seconds, joules in zip(found.epochs[:3], found.time, found.energy, strict=True):
        whole = predict(run.set({"run.epochs": float(epochs)}))
        assert seconds == pytest.approx(whole.time_to_train)
        assert joules == pytest.approx(whole.energy_to_train)
    assert found.time.low <= found.time.median <= found.time.high


def test_the_epochs_of_the_file_are_the_users_and_change_nothing():
    few, many = (predict(GOYAL.set({"run.epochs": n})).to_accuracy for n in (1.0, 300.0))
    assert few.time == many.time and few.energy == many.energy


def test_report_and_json_have_it_only_with_a_target():
    text, table = as_text(predict(MNIST), explained=True), as_dict(predict(MNIST))
    for words in ("time of an epoch", "time to 90%", "energy to 90%", "with 90%", "McCandlish"):
        assert words in text
    own = json.loads(json.dumps(table, allow_nan=False))["to_accuracy"]
    low, high = own["time_interval"]
    assert low < own["time"] < high and own["epochs"] > 1
    bare = MNIST.set({"run.target": 0.0})
    assert "epoch" not in as_text(predict(bare)) and "to_accuracy" not in as_dict(predict(bare))
    assert len(explain(predict(bare))) == len(explain(predict(MNIST))) - 1


def test_a_refusal_has_a_reason_and_no_number():
    p = predict(GOYAL.set({"strategy.batch": 512}))
    own = json.loads(json.dumps(as_dict(p), allow_nan=False))["to_accuracy"]
    assert own["time"] is own["energy"] is own["time_interval"] is None
    assert "65,536 is beyond 8,192" in own["reason"] and own["reason"] in as_text(p, explained=True)
    assert np.isnan(p.to_accuracy.time.high) and not p.to_accuracy.known


def test_a_short_repr_has_it():
    for run, words in ((MNIST, "energy to 90%"), (GOYAL.set({"strategy.batch": 512}), "unknown")):
        assert words in repr(predict(run)) and "to 90%" not in repr(predict(GOYAL))


def test_frames_have_columns_of_it():
    p = predict(GOYAL.set({"strategy.batch": np.array([16, 64, 512])}))
    found = p.to_columns()
    terms = len(p.terms)
    assert found["epochs_to_target"][0] == 90 and np.isnan(found["time_to_target_high"][-1])
    assert found["time_to_target"][::terms][:2] == pytest.approx(
        list(p.to_accuracy.time.median)[:2]
    )
    assert "epochs_to_target" not in predict(GOYAL.set({"run.target": 0.0})).to_columns()
