"""Laws of fitting: what is returned fits, trains on the same batch, and the first is the cheapest found."""

import re
from functools import cache

import pytest

from lib_dlhpc import Experiment, SpecError, loads
from lib_dlhpc.cli import main
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.limits import fit
from lib_dlhpc.prediction.limits.fit import Search, ways_to_fit

TOO_LARGE = Experiment(
    model={
        "family": "gpt",
        "layers": 24,
        "hidden": 2048,
        "heads": 16,
        "sequence": 1024,
        "vocabulary": 51200,
    },
    dataset="webtext",
    machine="dlperf-v100",
    strategy={"nodes": 1, "batch": 8, "precision": "fp16", "optimizer": "adam"},
)


@cache
def ways_for(order):
    """The search takes seconds."""
    return ways_to_fit(TOO_LARGE, order)


@pytest.mark.parametrize("order", ["step_time", "device_hours"])
def test_ways_fit_and_keep_the_global_batch(order):
    assert not predict(TOO_LARGE).fits
    ways = ways_for(order)
    assert len(ways) > 5
    costs = [getattr(way.prediction, order) for way in ways]
    assert costs == sorted(costs)
    for way in ways:
        assert way.prediction.fits and way.words
        assert way.prediction.experiment.global_batch == TOO_LARGE.global_batch
        assert way.prediction.memory_total <= TOO_LARGE.machine.device.memory


def test_every_kind_of_way_is_among_them():
    words = " ".join(way.words for way in ways_for("step_time"))
    for kind in (
        "activations recomputed",
        "ZeRO",
        "microbatches",
        "tensor",
        "pipeline",
        "offloaded",
        "nodes",
    ):
        assert kind in words, kind


WORDS = Experiment(
    model={
        "family": "gpt",
        "layers": 4,
        "hidden": 256,
        "heads": 4,
        "sequence": 64,
        "vocabulary": 64,
    },
    dataset="words",
    machine="laptop",
    strategy={"batch": 32, "optimizer": "adam"},
)


@pytest.mark.parametrize("devices", [1, 4])
def test_what_is_said_to_train_here_does_and_no_way_is_reported_twice(devices):
    from lib_dlhpc.training.check import check

    run = WORDS.set({"strategy.devices_per_node": devices, "machine.device.memory": 105e6})
    assert not predict(run).fits
    ways = ways_to_fit(run)
    figures = [(way.prediction.step_time, way.prediction.memory_total) for way in ways]
    assert len(set(figures)) == len(figures) > 2
    for way in ways:
        if way.untrained:
            with pytest.raises(SpecError, match=re.escape(way.untrained)):
                check(way.prediction.experiment)
        else:
            check(way.prediction.experiment)
    if devices == 1:
        assert not any("ZeRO" in way.words for way in ways)
    else:
        assert any(way.untrained for way in ways) and not all(way.untrained for way in ways)


def test_experts_may_be_sharded():
    strategy = 'nodes = 4\nbatch = 1\nprecision = "bf16"\noptimizer = "adam"\nzero = 1\n'
    what = 'model = "mixtral-8x7b"\ndataset = "imagenet"\nmachine = "h100-pod"\n'
    ways = ways_to_fit(loads(f"{what}[strategy]\n{strategy}"), most=40)
    assert "experts over 8 replicas" in [way.words for way in ways]


def test_what_fits_needs_no_way_round():
    small = TOO_LARGE.set({"model.layers": 2, "model.hidden": 256, "strategy.batch": 1})
    assert ways_to_fit(small, most=1)[0].words == "as it is"


def test_an_unknown_order_is_named():
    with pytest.raises(SpecError, match="step_time, device_hours"):
        ways_to_fit(TOO_LARGE, "memory")


def test_a_search_in_parts_finds_what_a_search_at_once_does():
    """And says at any time what it has tried and what is left."""
    at_once, in_parts = Search(TOO_LARGE), Search(TOO_LARGE)
    every = at_once.left
    at_once.run(60)
    for most in (0, 1, 10, 60):
        in_parts.run(most)
        assert in_parts.tried == most and in_parts.left == every - most
    assert [way.changes for way in in_parts.found] == [way.changes for way in at_once.found]
    in_parts.run(every, seconds=0.0)
    assert in_parts.tried == 60


def test_ctrl_c_in_the_search_keeps_the_prediction_and_what_was_found(capsys, monkeypatch):
    tried = []

    def predict_until(experiment):
        tried.append(experiment)
        if len(tried) == 12:
            raise KeyboardInterrupt
        return predict(experiment)

    monkeypatch.setattr(fit, "predict", predict_until)
    run = ["predict", "goyal-2017", "--set", "strategy.batch=4096"]
    assert main(run) == 130
    shown = capsys.readouterr()
    before, found = shown.out.split("  WALL  Memory")
    assert "one step" in before and "time to train" in before and "not tried" in found
    assert shown.err == "dlhpc: Search cancelled; the prediction is complete.\n"


def test_the_search_goes_on_until_something_fits(monkeypatch):
    asked = []
    monkeypatch.setattr(Search, "run", lambda self, most, _: asked.append((most, self.left)))
    assert main(["predict", "goyal-2017", "--set", "strategy.batch=4096"]) == 0
    assert asked[0][0] < asked[0][1] and asked[1] == (asked[0][1], asked[0][1])


def test_the_prediction_is_printed_before_anything_is_searched(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(Search, "run", lambda self, *_: seen.append(capsys.readouterr().out))
    assert main(["predict", "goyal-2017", "--set", "strategy.batch=4096"]) == 0
    assert "one step" in seen[0] and "WALL" in seen[0]
