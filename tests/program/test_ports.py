"""Laws of messages between stages that share links: the price is near that of events, and all engines have it."""

import numpy as np
import pytest
from split_runs import GPT, split

from lib_dlhpc.parallel import program
from lib_dlhpc.planner.prices import predicted
from lib_dlhpc.planner.search_space import changes_of
from lib_dlhpc.prediction import predict
from lib_dlhpc.program import ports, shared_walk
from lib_dlhpc.program.program import Program
from lib_dlhpc.simulation import simulate, simulate_terms
from lib_dlhpc.timeline import breakdown

MODEL = GPT | {"hidden": 256, "sequence": 128, "layers": 16, "vocabulary": 1024}
LONGER = MODEL | {"layers": 32}
FOUR = {"machine.nodes_per_switch": 4}
TREE, RAILS, TORUS = ({"machine.topology": name} for name in ("fat-tree", "rails", "torus"))
OVER_2, OVER_4 = ({"machine.oversubscription": times} for times in (2.0, 4.0))
INTERLEAVED = {"schedule": "interleaved", "microbatches": 32}
# Pipelines of 8 stages whose messages take longer than their passes: B/s, samples of a microbatch, strategy, machine.
SHARED = {
    "1f1b": (1.9e8, 2, {"microbatches": 16}, {}),
    "zero bubble": (4.6e8, 4, {"microbatches": 16, "schedule": "zb-h1"}, {}),
    "interleaved": (1.6e9, 4, INTERLEAVED | {"chunks": 4}, {}),
    "stages in a node": (1.3e8, 1, {"microbatches": 8, "data": 2, "devices_per_node": 4}, {}),
    "uplinks": (1.2e8, 2, {"microbatches": 32}, TREE | FOUR | OVER_2),
    "uplinks, interleaved": (
        *(2e8, 2, INTERLEAVED | {"chunks": 2, "data": 2}),
        TREE | FOUR | OVER_4,
    ),
    "torus": (3.9e8, 4, {"microbatches": 16, "data": 2}, TORUS),
    "rails, interleaved": (
        *(1.5e8, 2, INTERLEAVED | {"chunks": 4, "tensor": 2, "devices_per_node": 4}),
        RAILS | OVER_4 | {"machine.nodes_per_switch": 2},
    ),
}


def run_of(bandwidth, samples, ways, machine):
    model = LONGER if ways.get("chunks", 1) > 2 else MODEL
    links = {"latency": 1e-6, "bandwidth": bandwidth}
    batch = samples * ways["microbatches"] * ways.get("data", 1)
    run = split(model, links, precision="bf16", **{"pipeline": 8, "batch": batch} | ways)
    ports = {"machine.nics": 1, "machine.topology": "single-switch"}
    return run.set(ports | {"machine.intra_node.bandwidth": 10 * bandwidth} | machine)


def step(run):
    return float(predict(run).step_time)


@pytest.fixture
def one_after_another(monkeypatch):
    """Let a stage send its messages one after another, and those of several stages share nothing."""

    def use():
        monkeypatch.setattr(Program, "meets", None)

    return use


@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
def test_messages_that_share_links_take_as_long_as_with_events(shared, one_after_another):
    run, again = run_of(*shared), run_of(*shared)
    events = float(breakdown(simulate(run, "events")).step_time)
    assert step(run) == pytest.approx(events, rel=0.05)
    one_after_another()
    assert step(again) < 0.9 * events


@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
def test_rounds_without_jitter_are_the_prediction(shared):
    run = run_of(*shared)
    assert simulate_terms(run).step_time == pytest.approx(step(run), rel=1e-9)


@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
def test_rounds_that_are_skipped_change_nothing(shared, monkeypatch):
    run, again = run_of(*shared), run_of(*shared)
    assert program(run).meets is not None
    skipped, every = step(run), shared_walk.SharedWalk._round
    monkeypatch.setattr(
        shared_walk.SharedWalk,
        "_repeat",
        lambda self, rows, times: [every(self, rows) for _ in range(times)],
    )
    assert step(again) == pytest.approx(skipped, rel=1e-11)


def test_a_slow_link_between_groups_of_a_dragonfly_leaves_the_nic_to_other_messages():
    machine = {"machine.topology": "dragonfly", "machine.nodes_per_switch": 2}
    ways = {"microbatches": 16, "pipeline": 4, "data": 2}
    run = run_of(3.5e8, 2, ways, machine | {"machine.oversubscription": 4.0})
    events = float(breakdown(simulate(run, "events")).step_time)
    assert step(run) == pytest.approx(events, rel=0.01)


def test_messages_to_another_rail_pass_the_links_above_the_leaf_switches():
    ways = INTERLEAVED | {"microbatches": 16, "chunks": 4, "devices_per_node": 4}
    machine = RAILS | OVER_4 | {"machine.nodes_per_switch": 2, "machine.nics": 4}
    run = run_of(2e8, 2, ways, machine)
    events = float(breakdown(simulate(run, "events")).step_time)
    assert step(run) == pytest.approx(events, rel=0.05)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "interleaved"])
def test_messages_shorter_than_passes_do_not_meet(schedule, monkeypatch):
    ways = {"microbatches": 16, "schedule": schedule}
    ways |= {"chunks": 2} if schedule == "interleaved" else {}
    run = run_of(5e9, 2, ways, {})
    alone, step_of = step(run), program(run)
    assert step_of.lines is not None and step_of.meets is None
    monkeypatch.setattr(ports, "are_long", lambda *_: True)
    monkeypatch.setattr("lib_dlhpc.program.program.are_long", lambda *_: True)
    assert step(run_of(5e9, 2, ways, {})) == pytest.approx(alone, rel=1e-12)


def test_two_messages_on_one_link_take_as_long_together_as_one_after_the_other():
    port = ports.Ports(ports.SharedLinks((1, 1), (((1, ((0, 0, 1.0),)),), ((0, ((0, 0, 1.0),)),))))
    assert port.send(0, 0.0, 3.0) == 0.0
    assert port.send(1, 1.0, 3.0) == 2.0  # 2 s of the other are left
    # The first was on its way for 5 s, 2 of them for the other: so will the next one be.
    assert port.send(0, 9.0, 3.0) == 2.0
    assert port.begin(0, 9.0) == 12.0  # behind it


def test_plans_have_the_same_price():
    run = run_of(3e8, 2, {"microbatches": 16}, {})
    columns = {"microbatches": np.array([8, 16, 32]), "pipeline": np.full(3, 8)}
    columns |= {"data": np.ones(3, int), "schedule": np.array(["1f1b", "gpipe", "zb-h1"])}
    for rows, found in predicted(run, columns):
        for place, row in enumerate(rows.tolist()):
            one = run.set(changes_of(columns, row))
            assert (program(one).meets is None) == (row == 1)  # GPipe's go one way
            assert np.ravel(found.step_time)[place] == pytest.approx(step(one), rel=1e-12)
