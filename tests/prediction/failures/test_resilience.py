"""Laws of a run with failures: shares add up, no failures change nothing, the best interval is the best."""

import json
import warnings

import numpy as np
import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.costs.checkpoints import CheckpointCost, saving
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.failures.intervals import (
    best_interval,
    expected_cycle,
    goodput,
    system_mtbf,
)
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.prediction.reports.report import as_dict, as_text
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.spec.run import CHECKPOINTS
from lib_dlhpc.spec.units import parse_quantity


def resilience(run):
    return predict(run).resilience


RUN = Experiment(
    model="gpt2-1.5b",
    dataset="webtext",
    machine={
        "name": "summit",
        "node_mtbf": "300 h",
        "restart_time": "5 min",
        "local_survival": 0.6,
    },
    strategy={"nodes": 128, "optimizer": "adam", "precision": "fp16", "batch": 1},
    storage={"tier": "gpfs", "local": "nvme"},
    run={"epochs": 5, "checkpoint_interval": "20 min", "checkpoint_writers": "all"},
)
FAILING = {"run.checkpoint_writers": "first", "machine.storage.gpfs.write_bandwidth": 1e9}


@pytest.mark.parametrize("way", CHECKPOINTS)
@pytest.mark.parametrize("interval", [0.0, 60.0, 3600.0, 1e9])
def test_shares_add_up_to_the_expected_time(way, interval):
    found = resilience(
        RUN.set({**FAILING, "run.checkpoint": way, "run.checkpoint_interval": interval})
    )
    assert sum(found.shares.values()) == pytest.approx(1)
    assert all(share >= -1e-12 for share in found.shares.values())
    assert found.shares["training"] == pytest.approx(found.goodput)
    assert found.expected_time > found.prediction.time_to_train
    assert found.failures == pytest.approx(found.expected_time / (300 * 3600 / 128))


@pytest.mark.parametrize("way", CHECKPOINTS)
@pytest.mark.parametrize("interval", [0.0, 5.0, 3600.0, 1e9])
def test_without_failures_the_expected_time_is_the_predicted_one(way, interval):
    run = RUN.set({**FAILING, "run.checkpoint": way, "run.checkpoint_interval": interval})
    found = resilience(run.set({"machine.node_mtbf": np.inf}))
    assert found.expected_time == pytest.approx(found.prediction.time_to_train, rel=1e-12)
    assert found.failures == 0
    assert found.shares["restarts"] == 0
    assert found.shares["repeated work"] == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("way", CHECKPOINTS)
def test_no_interval_beats_the_best(way):
    run = RUN.set({**FAILING, "run.checkpoint": way})
    best = resilience(run).best
    times = resilience(
        run.set({"run.checkpoint_interval": best * np.array([0.3, 0.8, 1.0, 1.25, 3.0])})
    ).expected_time
    assert times.argmin() == 2
    assert resilience(run).best_goodput >= resilience(run).goodput_at(best * 1.1)


def test_without_checkpoints_a_failure_costs_the_run():
    """Daly's model with one segment and nothing saved: M e^(R/M) (e^(T/M) - 1)."""
    run = RUN.set({"run.checkpoint_interval": 0.0, "run.epochs": 0.1, "machine.restart_time": 0.0})
    found = resilience(run)
    start, again = found.prediction.start_time, found.mtbf
    model = start + again * np.exp(start / again) * np.expm1(found.work / again)
    assert found.expected_time == pytest.approx(model)
    # An interval that is longer than the run is nearly as bad.
    long = resilience(run.set({"run.checkpoint_interval": 1e12})).expected_time
    assert long == pytest.approx(model, rel=1e-3)


def test_twice_the_nodes_fail_twice_as_often_and_servers_are_nodes():
    assert resilience(RUN).mtbf == 2 * resilience(RUN.set({"strategy.nodes": 256})).mtbf
    served = RUN.set({"strategy.update": "asynchronous", "strategy.servers": 128})
    assert resilience(served).mtbf == resilience(RUN).mtbf / 2


def test_one_of_all_prices_is_what_a_long_run_pays():
    found = resilience(RUN)
    cycle = expected_cycle(1200.0, found.saving, found.mtbf)
    assert found.expected_time == pytest.approx(
        found.prediction.start_time + found.work / 1200 * cycle
    )


def test_it_broadcasts_over_nodes_and_intervals():
    nodes, intervals = np.array([32, 128, 512]), np.array([60.0, 600.0, 0.0])[:, None]
    run = RUN.set({"strategy.nodes": nodes, "run.checkpoint_interval": intervals})
    together = resilience(run)
    for i, interval in enumerate(intervals.ravel()):
        for j, count in enumerate(nodes):
            one = RUN.set(
                {"strategy.nodes": int(count), "run.checkpoint_interval": float(interval)}
            )
            alone = resilience(one)
            assert together.expected_time[i, j] == pytest.approx(alone.expected_time)
            assert together.shares["restarts"][i, j] == pytest.approx(alone.shares["restarts"])


def test_a_report_tells_it_where_nodes_fail():
    p = predict(RUN)
    assert "with failures" in as_text(p)
    reported = json.loads(json.dumps(as_dict(p)))["resilience"]
    assert reported["expected_time"] == p.resilience.expected_time
    never = predict(RUN.set({"machine.node_mtbf": np.inf}))
    assert "with failures" not in as_text(never)
    assert "resilience" not in as_dict(never)


@pytest.mark.parametrize("way", CHECKPOINTS)
def test_explanations_show_what_was_used(way):
    found = {item.name: item for item in explain(predict(RUN.set({"run.checkpoint": way})))}
    names = {name for name, _, _ in found["checkpoint"].inputs}
    own = {
        "asynchronous": "bandwidth of the host link",
        "multilevel": "write bandwidth of nvme of a node",
        "incremental": "changed share",
    }
    assert {name for name in own.values() if name in names} == {own.get(way)} - {None}
    expected = {name: value for name, value, _ in found["expected time with failures"].inputs}
    assert expected["of all nodes, M"] == "2.34 h"
    quiet = RUN.set({"machine.node_mtbf": np.inf, "run.checkpoint_interval": 0.0})
    assert not {"checkpoint", "expected time with failures"} & {
        item.name for item in explain(predict(quiet))
    }


@pytest.mark.parametrize("writers", ["first", "all"])
@pytest.mark.parametrize("tier", ["gpfs", "nvme"])
def test_the_bandwidth_that_is_explained_is_the_one_that_was_used(tier, writers):
    changes = {"storage.tier": tier, "run.checkpoint_writers": writers}
    run = RUN.set({**changes, "machine.storage.gpfs.write_bandwidth": 100e9})
    (reported,) = [item for item in explain(predict(run)) if item.name == "checkpoint"]
    values = {name: (value, source) for name, value, source in reported.inputs}
    price = saving(run)
    cards = {"first": "NICs", "all": "gpfs"}
    used = values.get("bandwidth", values.get(f"write bandwidth of {tier}"))
    assert parse_quantity(used[0], "B/s") == pytest.approx(price.size / price.blocked, rel=0.01)
    if tier == "gpfs":  # the two that it is the lower of stand beside it
        both = [values[name][0] for name in ("NICs of the writers", "write bandwidth of gpfs")]
        assert used[0] in both and used[1].endswith(cards[writers])
        assert parse_quantity(used[0], "B/s") == min(parse_quantity(x, "B/s") for x in both)


def test_a_host_without_room_for_the_copy_is_a_wall():
    run = RUN.set({"run.checkpoint": "asynchronous", "machine.host_memory": 1e9})
    assert not any("until it is written" in wall for wall in predict(run).walls)
    first = predict(run.set({"run.checkpoint_writers": "first"}))
    assert any("until it is written" in wall for wall in first.walls)


@pytest.mark.parametrize("way", CHECKPOINTS)
def test_a_step_has_one_checkpoint_at_most(way):
    run = RUN.set({**FAILING, "run.checkpoint": way})
    step = float(predict(run).step_time - predict(run).checkpoint)
    each = run.set({"run.checkpoint_interval": step})
    often = run.set({"run.checkpoint_interval": step / 50})
    assert predict(each).checkpoint == pytest.approx(saving(run).standstill(step))
    assert predict(often).step_time == pytest.approx(predict(each).step_time)
    (reported,) = [item for item in explain(predict(often)) if item.name == "checkpoint"]
    assert any(
        name == "interval" and "one step, the shortest" in source
        for name, _, source in reported.inputs
    )


def test_nobody_is_reported_to_let_all_nodes_write_who_does():
    run = RUN.set({"run.checkpoint": "asynchronous", "machine.host_memory": 1e9})
    reported = {}
    for writers, memory in (("first", 1e9), ("all", 1e6)):
        changes = {"run.checkpoint_writers": writers, "machine.host_memory": memory}
        (reported[writers],) = [w for w in predict(run.set(changes)).walls if "is written" in w]
    assert "let all nodes write" in reported["first"]
    assert "let all nodes write" not in reported["all"] and "synchronous" in reported["all"]


@pytest.mark.parametrize("writers", ["first", "all"])
@pytest.mark.parametrize("way", CHECKPOINTS)
def test_a_checkpoint_in_the_nodes_alone_goes_with_a_node(way, writers):
    run = RUN.set({"run.checkpoint": way, "run.checkpoint_writers": writers})
    own = run.set({"storage.tier": "nvme"})

    def reported(run):
        return [wall for wall in predict(run).walls if wall.startswith("Checkpoints")]

    assert reported(run) == []
    (wall,) = reported(own)
    assert "nvme" in wall and "40%" in wall and "shared" in wall
    assert reported(own.set({"machine.local_survival": 1.0})) == []
    assert reported(own.set({"machine.node_mtbf": np.inf})) == []
    assert reported(own.set({"run.checkpoint_interval": 0.0})) == []


def test_a_run_that_never_ends_is_reported_as_such():
    run = RUN.set({"run.checkpoint_interval": 0.0, "run.epochs": 1e5})
    p = predict(run)
    assert p.resilience.expected_time == np.inf
    assert p.resilience.goodput == 0
    assert sum(p.resilience.shares.values()) == pytest.approx(1)
    assert "never done" in as_text(p, explained=True)
    assert "none   each failure restarts the whole run: set run.checkpoint_interval\n" in as_text(p)
    reported = json.dumps(as_dict(p), allow_nan=False)
    assert json.loads(reported)["resilience"]["expected_time"] is None


def test_a_run_without_checkpoints_says_which_fields_give_it_some():
    none = {"run.checkpoint_interval": 0.0, "storage.tier": "", "storage.local": ""}
    text = as_text(predict(RUN.set(none)))
    assert (
        f"set run.checkpoint_interval and storage.tier ({' or '.join(RUN.machine.storage)})" in text
    )
    assert "restarts the whole run" not in as_text(predict(RUN))
    assert "restarts the whole run" not in as_text(
        predict(RUN.set(none | {"machine.node_mtbf": np.inf}))
    )


def test_a_run_of_more_than_ten_thousand_years_is_never_done_either():
    p = predict(RUN.set({"machine.node_mtbf": 3000.0}))
    assert 1e12 < p.resilience.expected_time < np.inf
    text = as_text(p, explained=True)
    assert text.count("never done") == 2 and "failures expected: unbounded" in text
    assert "000000 years" not in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "never done" in as_text(predict(RUN.set({"machine.node_mtbf": 20.0})), True)


BLOOM = Experiment(
    model={
        "family": "gpt",
        "layers": 70,
        "hidden": 14336,
        "heads": 112,
        "sequence": 2048,
        "vocabulary": 250_880,
    },
    dataset="webtext",
    machine="jeanzay",
    strategy={
        "nodes": 48,
        "tensor": 4,
        "pipeline": 12,
        "microbatches": 256,
        "batch": 256,
        "optimizer": "adam",
        "precision": "bf16",
    },
    storage={"tier": "gpfs"},
    run={"checkpoint_interval": "3 h", "checkpoint_writers": "all"},
)


def test_blooms_checkpoints_take_40_s_and_a_third_of_a_percent():
    """ml-engineering, fault tolerance: 40 s each (2.3 TB), every 3 h, 8 h in 90 days."""
    price = saving(BLOOM)
    assert price.blocked == pytest.approx(40, rel=0.1)
    assert price.blocked / (3 * 3600) * 90 * 24 == pytest.approx(8, rel=0.1)
    # Its nodes fail every few days: three hours are near the best interval, and little is lost.
    found = resilience(BLOOM)
    assert 0.3 < found.best / (3 * 3600) < 3
    assert found.goodput_at(3 * 3600) > 0.97


def test_a_machine_like_llama_3s_trains_more_than_nine_tenths_of_the_time():
    """Grattafiori et al. 2024: effective training time "higher than 90%"; a failure every 3.09 hours."""
    machine = load_machine("h100-pod")
    mtbf = system_mtbf(machine.node_mtbf, 2048)
    assert mtbf / 3600 == pytest.approx(54 * 24 / 419, rel=1e-3)
    write = 405e9 * 14 / machine.storage["tectonic"].write_bandwidth
    price = CheckpointCost(405e9 * 14, 405e9 * 14, write, restart=machine.restart_time + write)
    assert 0.9 < goodput(best_interval(price, mtbf), price, mtbf) < 0.95
    assert goodput(3 * 3600, price, mtbf) < 0.65  # as often as BLOOM
