"""`dlhpc simulate`: beside the prediction, and a reason wherever a term differs."""

import json

import numpy as np
import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.storage.profile import slides_run
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.compare import NOTABLE, why
from lib_dlhpc.simulation.simulation import Traffic
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import ALLREDUCES
from lib_dlhpc.timeline import breakdown

QUIET = "machine.jitter=0.0"


def test_without_jitter_goyal_does_not_differ(capsys):
    assert main(["simulate", "goyal-2017", "--set", QUIET]) == 0
    shown = capsys.readouterr().out
    assert "no term differs" in shown and "256 ranks" in shown


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], "draws the jitter"),
        ([QUIET, "strategy.allreduce=parameter_server"], "host of a node"),
        ([QUIET, "run.checkpoint_interval=60"], "writes no checkpoint"),
    ],
)
def test_where_they_differ_it_says_why(changes, words, capsys):
    assert main(["simulate", "goyal-2017", *[x for c in changes for x in ("--set", c)]]) == 0
    shown = capsys.readouterr().out
    assert words in shown and "no term differs" not in shown


@pytest.mark.parametrize("allreduce", ALLREDUCES)
@pytest.mark.parametrize(
    "topology", ["single-switch", "fat-tree", "torus", "dragonfly", "rails", "rails-pxn"]
)
@pytest.mark.parametrize("jitter", [0.0, 0.02])
def test_there_is_a_reason_if_and_only_if_a_term_differs(allreduce, topology, jitter):
    experiment = replay("goyal-2017").experiment.set(
        {
            "strategy.nodes": 6,
            "strategy.allreduce": allreduce,
            "machine.topology": topology,
            "machine.oversubscription": 4.0,
            "machine.jitter": jitter,
        }
    )
    found = breakdown(simulate(experiment)).terms
    expected = {name: float(seconds) for name, seconds in predict(experiment).terms.items()}
    notable = NOTABLE * sum(expected.values())
    differs = any(abs(found[name] - expected[name]) > notable for name in expected)
    assert bool(why(experiment, "rounds", found, expected)) == differs


def test_a_split_run_in_rounds_meets_the_congestion_that_is_predicted():
    machine = {"name": "h100-pod", "nodes_per_switch": 2, "oversubscription": 8.0, "jitter": 0.0}
    split = {"nodes": 8, "devices_per_node": 2, "pipeline": 2, "microbatches": 4, "batch": 4}
    for over in (8.0, 1.0):
        run = Experiment("opt-125m", machine={**machine, "oversubscription": over}, strategy=split)
        expected = {name: float(seconds) for name, seconds in predict(run).terms.items()}
        found = breakdown(simulate(run)).terms
        assert found == pytest.approx(expected, abs=1e-9 * sum(expected.values()))
        assert not why(run, "rounds", found, expected)


SMALL = {"strategy.nodes": 2, "machine.jitter": 0.0, "machine.topology": "single-switch"}


def reasons(changes=(), fidelity="events", speed=1.0, background=(), **options):
    experiment = replay("goyal-2017").experiment.set({**SMALL, **dict(changes)})
    timeline = simulate(experiment, fidelity, speed=speed, background=background, **options)
    expected = {name: float(seconds) for name, seconds in predict(experiment).terms.items()}
    return why(experiment, fidelity, breakdown(timeline).terms, expected, speed, background)


def test_events_without_contention_and_noise_need_no_reason():
    assert reasons() == []


def test_in_events_a_late_rank_holds_up_its_neighbors():
    late = np.ones(16)
    late[3] = 0.5
    ring = {"strategy.allreduce": "ring", "strategy.bucket": "2 MB"}
    for given in ({"changes": {**ring, "machine.jitter": 0.05}}, {"changes": ring, "speed": late}):
        assert any("rendezvous" in reason for reason in reasons(**given))
        assert not any("rendezvous" in reason for reason in reasons(**given, fidelity="rounds"))


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_given_speeds_are_a_reason(fidelity):
    found = reasons(fidelity=fidelity, speed=[0.5] + [1.0] * 15)
    assert any("speeds of 0.5 to 1" in reason for reason in found)
    assert not any("jitter" in reason or "finish a bucket" in reason for reason in found)


def test_others_traffic_is_a_reason():
    found = reasons({"strategy.overlap": False}, background=[Traffic(0, 8, np.inf)])
    assert any("other traffic" in reason for reason in found)


def test_configured_checkpoints_are_a_reason():
    found = reasons(fidelity="rounds", checkpoint=lambda step: 1.0)
    assert found == [reason for reason in found if "was configured with the steps" in reason] != []


def test_json_holds_both_and_the_same_seed_the_same_text(capsys):
    shown = []
    for seed in ("1", "1", "2"):
        assert main(["simulate", "goyal-2017", "--json", "--seed", seed, "--steps", "2"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]
    result = json.loads(shown[0])
    assert (result["ranks"], result["steps"], result["fidelity"]) == (256, 2, "rounds")
    assert sum(result["terms"].values()) == pytest.approx(result["step_time"], rel=1e-9)
    assert set(result["terms"]) == set(result["predicted_terms"])
    assert result["reasons"]


def test_trace_writes_the_timeline(tmp_path, capsys):
    path = tmp_path / "out.json"
    assert main(["simulate", "goyal-2017", "--trace", str(path)]) == 0
    capsys.readouterr()
    assert {e["pid"] for e in json.loads(path.read_text())["traceEvents"]} == set(range(256))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fidelity", "event"], "Did you mean 'events'"),
        (["--steps", "0"], "steps = 0"),
        (["--seed", "-3"], "seed = -3"),
        (["--trace", "/no/such/folder/x.json"], "--trace"),
    ],
)
def test_a_mistake_prints_one_line_and_exits_2(arguments, words, capsys):
    assert main(["simulate", "goyal-2017", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_why_a_split_network_differs():
    run = Experiment(
        model="lenet5",
        dataset="mnist-5k",
        machine={"name": "laptop", "jitter": 0.0},
        strategy={"devices_per_node": 2, "pipeline": 2, "microbatches": 4},
    )
    rounds, predicted = breakdown(simulate(run)).terms, predict(run).terms
    assert not why(run, "rounds", rounds, predicted)
    late = {name: 1.1 * seconds for name, seconds in rounds.items()}
    assert any(
        "share links as they arrive" in reason for reason in why(run, "events", late, predicted)
    )


def test_where_readers_queue_it_is_said():
    """Many readers behind slow servers wait in turn; a prediction knows only their rate."""
    run = slides_run(nodes=2).set({"machine.jitter": 0.0, "storage.prefetch": 1})
    run = run.set({"machine.storage.lustre.metadata_rate": 3e3, "storage.decode": 0.02})
    found = breakdown(simulate(run, steps=4)).terms
    expected = {name: float(seconds) for name, seconds in predict(run).terms.items()}
    assert abs(found["input stall"] - expected["input stall"]) > NOTABLE * sum(expected.values())
    assert any("readers queue" in reason for reason in why(run, "rounds", found, expected))
    assert not why(run, "rounds", expected, expected)
