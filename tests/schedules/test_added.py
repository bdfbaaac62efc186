"""An allreduce added in one place is known everywhere: every verb, every explanation, every control and page."""

import json
from pathlib import Path

import numpy as np
import pytest
import star
from star import STAR

from lib_dlhpc import loads
from lib_dlhpc.cli import main
from lib_dlhpc.costs.network import Level, Network
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.allreduce.charts import name_of
from lib_dlhpc.explore.allreduce.nodes import buffers_out
from lib_dlhpc.explore.allreduce.rounds import Example, rounds_and_chunks
from lib_dlhpc.explore.allreduce.sizes import fastest_first
from lib_dlhpc.explore.allreduce.try_out import try_out
from lib_dlhpc.explore.explorer.axes import axes_of
from lib_dlhpc.explore.explorer.controls import NAMED
from lib_dlhpc.explore.explorer.limits import messages, too_much
from lib_dlhpc.explore.explorer.page import Explorer
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.communication import collectives
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.schedules import ALGORITHMS, COLLECTIVES, price, prove, schedule
from lib_dlhpc.schedules.choice import candidates
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec import strategy
from lib_dlhpc.timeline import breakdown

RUN = """
[model]
name = "resnet18"
[dataset]
name = "imagenet"
[machine]
name = "lassen"
jitter = 0
[strategy]
nodes = 2
devices_per_node = 2
batch = 8
allreduce = "star"
"""
SPLITS = [{"tensor": 2}, {"zero": 1}, {"zero": 3}, {"pipeline": 2, "microbatches": 2}]


@pytest.fixture(autouse=True)
def added(monkeypatch):
    monkeypatch.setitem(strategy.ALLREDUCES, "star", "")
    star.add(strategy.ALLREDUCES)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "star.toml"
    path.write_text(RUN)
    return str(path)


def test_it_is_gone_where_it_is_not_added(monkeypatch):
    """So nothing keeps a copy of the list."""
    monkeypatch.delitem(strategy.ALLREDUCES, "star")
    assert "star" not in ALGORITHMS and "star" not in COLLECTIVES["allreduce"]
    assert "star" not in collectives.ALGORITHMS and STAR not in candidates("allreduce")
    with pytest.raises(SpecError, match=r"Legal: auto, .*ring"):
        loads(RUN)


@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_it_is_proved_and_priced(p):
    ours = schedule("star", p, 100)
    prove(ours)
    net = Network(Level(1, 9.0, 9.0), Level(p, 1e-6, 1e-10), 1e-11)
    assert tuple(price(ours, network=net)) == pytest.approx(tuple(STAR.priced(400.0, net)))
    assert STAR in candidates("allreduce")


def test_it_is_predicted_explained_and_simulated():
    experiment = loads(RUN)
    prediction = predict(experiment)
    explained = {item.name: item for item in explain(prediction)}["communication"]
    assert STAR.label in explained.formula and STAR.formula in explained.formula
    for fidelity in ("rounds", "events"):
        played = breakdown(simulate(experiment, fidelity))
        assert played.step_time == pytest.approx(float(prediction.step_time), rel=1e-9)


@pytest.mark.parametrize("split", SPLITS)
def test_a_network_that_is_split_takes_it_too(split):
    experiment = loads(RUN).set({f"strategy.{name}": value for name, value in split.items()})
    prediction = predict(experiment)
    explained = [{name: value for name, value, _ in item.inputs} for item in explain(prediction)]
    used = [inputs["algorithm"] for inputs in explained if "algorithm" in inputs]
    # Of no halves, so it has none for ZeRO.
    assert used and (STAR.label in used[0]) == ("zero" not in split)
    for fidelity in ("rounds", "events"):
        assert breakdown(simulate(experiment, fidelity)).step_time > 0


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_every_command_takes_it(file, fidelity, capsys):
    assert main(["predict", file]) == 0
    assert main(["predict", file, "--explain"]) == 0
    assert STAR.formula in capsys.readouterr().out
    assert main(["predict", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert main(["simulate", file, "--fidelity", fidelity]) == 0
    assert "star" in capsys.readouterr().out
    assert main(["validate", "goyal17"]) == 0


def test_the_explorer_offers_and_explains_it():
    page = Explorer()
    options = NAMED["strategy.allreduce"].options(page.experiment)
    assert (STAR.label, "star") in options
    for _, name in options:
        page.move("strategy.allreduce", name)
        assert page.experiment.strategy.allreduce == name
    experiment = page.experiment.set({"strategy.allreduce": "star"})
    assert "star" in next(axis.values for axis in axes_of(experiment) if axis.title == "Allreduce")
    assert messages(experiment.set({"strategy.nodes": 2}), 1) > 0
    too_much(experiment, "events", 1)


def test_the_lesson_draws_and_animates_it():
    page = rounds_and_chunks()
    assert "star" in dict(page.controls["algorithm"].options).values()
    for name in COLLECTIVES["allreduce"]:
        prove(Example(name, 6, 12).plan)
        assert name_of(name)
    assert try_out(star.star).children
    assert buffers_out("star", 2, 2) == 2
    net = Network(Level(2, 1e-6, 1e-11), Level(2, 5e-6, 1e-10), 1e-11)
    assert fastest_first(1e6, net, ("star",))["star"].total > 0


@pytest.mark.parametrize("name", [*strategy.ALLREDUCES, "star"])
def test_a_record_says_all_that_pages_and_engines_ask_for(name):
    record = COLLECTIVES["allreduce"][name]
    assert record.name == name and record.goal == "allreduce" and record.cost is not None
    assert record.label and record.formula
    assert record.on_nodes(4, 2) == ({"node_size": 2} if record.by_node else {})
    assert record.on_nodes(5, 2) == {}


def test_nothing_else_lists_the_allreduces(repository):
    """A table of all of them is one that a new one is missing in."""
    names = ("ring", "recursive_doubling", "binomial", "halving_doubling", "parameter_server")
    files = [*Path(repository, "lib_dlhpc").rglob("*.py")]
    lists = [f.name for f in files if all(f'"{name}"' in f.read_text() for name in names)]
    assert lists == []


@pytest.mark.parametrize("n", [0, 1, 7])
def test_rounds_of_a_record_are_those_of_its_function(n):
    ours, own = schedule("star", 3, n), schedule(star.star, 3, n)
    for one, other in zip(ours, own, strict=True):
        for a, b in zip(one.arrays, other.arrays, strict=True):
            assert np.array_equal(a, b)
