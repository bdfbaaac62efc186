"""A chosen layout with failures: runs of the simulated step agree with the closed form."""

import json
import sys

import pytest

from lib_dlhpc import loads
from lib_dlhpc.cli import main
from lib_dlhpc.planner import plan
from lib_dlhpc.planner.failures import with_failures

TEXT = """
model = "resnet50"
dataset = "imagenet"
[machine]
name = "summit"
jitter = 0.0
node_mtbf = "20 min"
restart_time = "20 s"
[machine.storage.slow]
bandwidth = "10 GB/s"
write_bandwidth = "50 MB/s"
[strategy]
nodes = 2
batch = 32
[storage]
tier = "slow"
[run]
epochs = 1
checkpoint_interval = "1 min"
[plan]
predictions = 20
axes = { tensor = [1], pipeline = [1], spatial = [1], zero = [0, 1], microbatches = [1, 2], recompute = ["none"] }
"""
RUN = loads(TEXT)
CONTENDED = {"strategy.nodes": 8, "strategy.overlap": False, "machine.nodes_per_switch": 2}
CONTENDED |= {"machine.oversubscription": 8.0}


def test_runs_of_the_best_layout_take_as_long_as_expected():
    (found,) = with_failures(planned := plan(RUN))
    predicted = planned.best.prediction
    assert found.layout == planned.best.words
    step = float(predicted.step_time - predicted.checkpoint)
    assert found.step_time == pytest.approx(step, rel=1e-9)
    assert found.expected_time > float(predicted.time_to_train)
    off = abs(found.simulated_time - found.expected_time)
    assert off < 4 * found.standard_error < 0.2 * found.expected_time
    assert with_failures(plan(RUN)) == (found,)


def test_stragglers_are_in_the_step_that_is_simulated():
    slow = RUN.set({"machine.jitter": 0.3})
    (found,), (even,) = with_failures(plan(slow)), with_failures(plan(RUN))
    assert found.step_time > 1.1 * even.step_time
    assert found.simulated_time > even.simulated_time


def test_links_that_messages_share_are_in_the_step_of_a_small_run(monkeypatch):
    """Under a top of the tree with an eighth of its bandwidth messages share links, as events and rounds know."""
    contended = RUN.set(CONTENDED)
    (found,) = with_failures(planned := plan(contended))
    step = planned.best.prediction.step_time - planned.best.prediction.checkpoint
    assert found.fidelity == "events" and "simulated in events" in found.words
    assert found.step_time == pytest.approx(float(step), rel=1e-9)
    monkeypatch.setattr("lib_dlhpc.planner.failures.EVENTS", 10)
    (bulk,) = with_failures(planned)
    assert bulk.fidelity == "rounds" and bulk.step_time == pytest.approx(float(step), rel=1e-9)


def test_of_a_front_the_best_and_the_knee_are_simulated():
    found = plan(RUN, ["time", "energy"])
    layouts = [each.layout for each in with_failures(found)]
    assert layouts == list(dict.fromkeys([found.best.words, found.knee.words]))


@pytest.mark.parametrize(
    "changes",
    [{"machine.node_mtbf": float("inf")}, {"run.checkpoint_interval": 0.0}],
    ids=["nothing fails", "nothing is saved"],
)
def test_nothing_is_simulated_without_failures(changes):
    assert with_failures(plan(RUN.set(changes))) == ()


def test_a_run_without_headway_is_never_done():
    (found,) = with_failures(plan(RUN.set({"machine.node_mtbf": 0.1})))
    assert found.simulated_time == float("inf") and "never done simulated" in found.words


def test_the_report_and_the_json_have_both_times(tmp_path, capsys, monkeypatch):
    file = tmp_path / "run.toml"
    file.write_text(TEXT)
    assert main(["plan", str(file), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["with_failures"]
    assert row["simulated_time"] == pytest.approx(row["expected_time"], rel=0.2)
    assert main(["plan", str(file)]) == 0
    report = capsys.readouterr().out
    assert "with failures:" in report and "100 runs" in report
    for name in [each for each in sys.modules if each.startswith("lib_dlhpc.simulation")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "simpy", None)
    assert main(["plan", str(file)]) == 0
    assert "not simulated: " in capsys.readouterr().out
