"""Many seeds of a simulation, in chunks: each is the simulation with that seed."""

import json

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.scale_out import place, seeds, work
from lib_dlhpc.scale_out.seeds import simulate_seeds
from lib_dlhpc.simulation import measure, simulate


@pytest.fixture(scope="module")
def goyal():
    return replay("goyal-2017").experiment.set({"strategy.nodes": 2})


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_a_row_is_the_simulation_with_its_seed(goyal, fidelity):
    found = simulate_seeds(goyal, 3, fidelity, first=5).columns
    assert found["seed"] == [5, 6, 7]
    one = measure(goyal, simulate(goyal, fidelity, 6))
    assert found["step_time"][1] == pytest.approx(one.step_time, rel=1e-12)
    for name, seconds in one.terms.items():
        assert found[name][1] == pytest.approx(seconds, rel=1e-9, abs=1e-12)


def test_processes_have_the_rows_of_one(goyal):
    assert (
        simulate_seeds(goyal, 20).columns
        == simulate_seeds(goyal, 20, where=place("processes:2")).columns
    )


def test_larger_chunks_of_many_seeds_have_the_same_rows(goyal, monkeypatch):
    whole = simulate_seeds(goyal, 37).columns
    done = []
    monkeypatch.setattr(seeds, "CHUNKS", 2)
    monkeypatch.setattr(seeds, "part", lambda *given: done.append(given) or work.part(*given))
    assert simulate_seeds(goyal, 37).columns == whole
    assert done == [(19, 0, 37), (19, 1, 37)]


def test_there_is_at_least_one_seed(goyal):
    with pytest.raises(SpecError, match="1 and more"):
        simulate_seeds(goyal, 0)


def test_the_command(capsys):
    words = ["simulate", "goyal-2017", "--set", "strategy.nodes=2"]
    assert main([*words, "--seeds", "5", "--seed", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] == [3, 4, 5, 6, 7]
    assert main([*words, "--seeds", "5"]) == 0
    assert "95%" in capsys.readouterr().out
    assert main([*words, "--on", "processes"]) == 2
    assert main([*words, "--seeds", "5", "--trace", "x.json"]) == 2
