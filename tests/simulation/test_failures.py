"""Laws of runs with failures: many agree with the exact expectation, none is the prediction, each adds up."""

from itertools import pairwise

import numpy as np
import pytest

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.costs.checkpoints import CheckpointCost, Checks
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.failures.intervals import expected_cycle
from lib_dlhpc.simulation.failures import KINDS, simulate_failures, simulate_runs
from lib_dlhpc.spec.run import CHECKPOINTS

RUN = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine={
        "name": "summit",
        "jitter": 0.0,
        "node_mtbf": "20 min",
        "restart_time": "20 s",
        "local_survival": 0.6,
        "storage": {"slow": {"bandwidth": "50 MB/s"}},
    },
    strategy={"nodes": 4, "overlap": False},
    storage={"tier": "slow", "local": "nvme"},
    run={"epochs": 1, "checkpoint_interval": "1 min"},
)


def saved(blocked, background=0.0, restart=0.0, survived=0.0, local=0.0):
    return CheckpointCost(0, 0, blocked, background, 0.0, restart, survived, local)


WAYS = {
    "synchronous": saved(5.0, restart=10.0),
    "asynchronous": saved(2.0, 30.0, 10.0),
    "asynchronous, with waits": saved(2.0, 60.0, 10.0),
    "two levels": saved(2.0, 30.0, 20.0, 0.7, 5.0),
    "two levels, with waits": saved(2.0, 90.0, 20.0, 0.7, 5.0),
    "restarts as long as it holds": saved(5.0, restart=150.0),
}


@pytest.mark.parametrize("way", WAYS)
def test_many_runs_take_as_long_as_the_exact_expectation(way):
    interval, mtbf, stretches, runs = 40.0, 200.0, 100, 1200
    played = simulate_runs(stretches * interval, interval, WAYS[way], mtbf, runs=runs, seed=1)
    expected = stretches * expected_cycle(interval, WAYS[way], mtbf)
    assert played.wall.mean() == pytest.approx(expected, rel=0.02)
    # Runs are as many as needed to see that: the mean is known to a third of the bound.
    assert played.wall.std() / np.sqrt(runs) < 0.02 / 3 * expected
    assert played.failures.mean() * mtbf == pytest.approx(played.wall.mean(), rel=0.02)


@pytest.mark.parametrize("way", CHECKPOINTS)
def test_an_experiment_played_agrees_with_the_predicted_one(way):
    run = RUN.set({"run.checkpoint": way, "run.epochs": 10.0})
    predicted = predict(run).resilience
    played = simulate_failures(
        run, runs=800, seed=3, step=predicted.work / predicted.prediction.steps
    )
    assert played.work == pytest.approx(predicted.work)
    assert played.wall.mean() == pytest.approx(predicted.expected_time, rel=0.02)
    assert played.goodput == pytest.approx(predicted.goodput, rel=0.02)


def test_runs_wait_for_spares_as_predicted():
    """Runs of many repairs; the first ones, for which all spares are there, count little."""
    changes = {"machine.node_mtbf": 1200.0, "machine.repair_time": 400.0, "machine.nodes": 5}
    run = RUN.set({**changes, "run.epochs": 15.0})
    predicted = predict(run).resilience
    # Erlang: 4/3, two servers.
    assert predicted.waits == pytest.approx((8 / 9) / (1 + 4 / 3 + 8 / 9))
    step = predicted.work / predicted.prediction.steps
    played = simulate_failures(run, runs=100, seed=3, step=step)
    assert played.shares["no spare"] == pytest.approx(
        predicted.shares["waits for a spare"], rel=0.05
    )
    assert played.goodput == pytest.approx(predicted.goodput, rel=0.02)
    assert played.failures.mean() == pytest.approx(predicted.failures, rel=0.02)
    assert sum(predicted.shares.values()) == pytest.approx(1)


def test_by_hand_a_restart_waits_for_the_first_repaired_node():
    price, struck = saved(2.0, restart=5.0), [10.0, 30.0]
    one = simulate_runs(80.0, 40.0, price, failures=struck, spares=1, repair=1000.0, seed=4)
    waits = [phase for phase in one.phases if phase.kind == "no spare"]
    assert [phase.start for phase in waits] == [30.0]  # the first failure took the spare
    after = one.phases[one.phases.index(waits[0]) + 1]
    assert (after.kind, after.start, after.stop) == ("restart", waits[0].stop, waits[0].stop + 5)
    plain = simulate_runs(80.0, 40.0, price, failures=struck)
    assert one.wall - plain.wall == pytest.approx(waits[0].stop - 30.0)


def test_all_spares_take_the_place_of_nodes_that_fail_at_given_times():
    struck = [float(each) for each in range(1, 101)]
    for spares, waits in ((100, 0), (99, 1)):
        run = simulate_runs(200.0, 40.0, saved(0.0), failures=struck, spares=spares, repair=1e9)
        assert sum(phase.kind == "no spare" for phase in run.phases) == waits


@pytest.mark.parametrize("interval", [0.0, 1.0])
def test_without_failures_a_synchronous_run_is_the_predicted_one(interval):
    p = predict(RUN)
    whole = p.resilience.work / 7  # a run that ends with a checkpoint, as the prediction has it
    run = RUN.set({"machine.node_mtbf": np.inf, "run.checkpoint_interval": interval * whole})
    played = simulate_failures(run)
    assert played.wall == pytest.approx([predict(run).time_to_train], rel=1e-9)
    assert [p.kind for p in played.phases].count("checkpoint") == 7 * interval
    assert played.failures.sum() == 0


@pytest.mark.parametrize("way", CHECKPOINTS)
@pytest.mark.parametrize("interval", [0.0, 10.0, 60.0, 300.0, 1e6])
def test_without_failures_each_run_takes_what_is_expected_of_it(way, interval):
    """Each save, the waits for the last write behind training, and no save at the end."""
    run = RUN.set({"run.checkpoint": way, "run.checkpoint_interval": interval})
    run = run.set({"machine.node_mtbf": np.inf, "run.epochs": 0.3})
    found = predict(run).resilience
    step = float(found.work / found.prediction.steps)
    played = simulate_failures(run, step=step)
    assert found.expected_run == pytest.approx(played.wall[0], rel=1e-9)
    each = found.saving.standstill(interval) if interval else 0.0
    assert abs(found.expected_run - found.expected_time) <= each + 1e-9


@pytest.mark.parametrize("way", CHECKPOINTS)
@pytest.mark.parametrize("stretches", [0.4, 1.0, 2.5])
def test_short_runs_take_what_is_expected_of_them(way, stretches):
    """With failures, too: of runs of a few intervals the mean is within its error."""
    short = RUN.set({"run.checkpoint": way, "run.epochs": 0.05})
    run = short.set({"run.checkpoint_interval": float(predict(short).resilience.work / stretches)})
    found = predict(run).resilience
    step = float(found.work / found.prediction.steps)
    played = simulate_failures(run, runs=2000, seed=5, step=step).wall
    error = played.std() / 2000**0.5
    assert played.mean() == pytest.approx(found.expected_run, abs=4 * error)


def test_what_is_expected_of_a_run_broadcasts():
    intervals = np.array([0.0, 30.0, 60.0, 1e6])
    run = RUN.set({"run.epochs": 0.3, "run.checkpoint": "asynchronous"})
    several = predict(run.set({"run.checkpoint_interval": intervals})).resilience.expected_run
    for interval, found in zip(intervals, several, strict=True):
        one = predict(run.set({"run.checkpoint_interval": float(interval)}))
        assert found == pytest.approx(one.resilience.expected_run, rel=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_run_does_fills_its_time(way):
    played = simulate_runs(1000.0, 40.0, WAYS[way], 150.0, runs=20, seed=2, start=3.0)
    assert set(played.seconds) == set(KINDS)
    np.testing.assert_allclose(sum(played.seconds.values()), played.wall)
    np.testing.assert_allclose(played.seconds["training"], 1000.0)
    np.testing.assert_allclose(played.seconds["first start"], 3.0)
    assert sum(played.shares.values()) == pytest.approx(1)
    for kind in KINDS:
        found = sum(phase.stop - phase.start for phase in played.phases if phase.kind == kind)
        assert found == pytest.approx(played.seconds[kind][0])
    ahead = [phase for phase in played.phases if phase.kind != "write"]
    assert all(a.stop == b.start for a, b in pairwise(ahead))
    assert sum(not phase.ended for phase in ahead) == played.failures[0]


def kinds(played):
    return [(p.kind, p.start, p.stop, p.done, p.ended) for p in played.phases]


def test_failures_at_given_times_strike_what_goes_on():
    """By hand: 40 s stretches, 2 s to copy, 30 s to write behind; struck while training, then restarting."""
    played = simulate_runs(100.0, 40.0, WAYS["asynchronous"], failures=[57.0, 50.0])
    assert sorted(kinds(played), key=lambda phase: phase[1:]) == [
        ("training", 0, 40, 40, True),
        ("checkpoint", 40, 42, 40, True),
        ("write", 42, 50, 40, False),  # struck before it was safe: back to the start
        ("training", 42, 50, 48, False),
        ("restart", 50, 57, 0, False),
        ("restart", 57, 67, 0, True),
        ("repeated work", 67, 107, 40, True),
        ("checkpoint", 107, 109, 40, True),
        ("repeated work", 109, 117, 48, True),
        ("write", 109, 139, 40, True),
        ("training", 117, 149, 80, True),
        ("checkpoint", 149, 151, 80, True),
        ("training", 151, 171, 100, True),
    ]
    assert played.wall == [171.0]
    assert played.failures == [2]


def test_a_copy_that_survives_is_where_it_goes_on_and_its_write_starts_anew():
    two = saved(2.0, 30.0, restart=20.0, survived=1.0, local=5.0)
    played = simulate_runs(80.0, 40.0, two, failures=[50.0])
    found = kinds(played)
    assert ("restart", 50, 55, 40, True) in found
    assert ("write", 42, 50, 40, False) in found
    assert ("write", 55, 85, 40, True) in found
    assert played.seconds["repeated work"] == [8.0]
    assert played.wall == [42 + 8 + 5 + 40 + 2]


def test_a_failure_after_the_write_costs_one_stretch_at_most():
    done = simulate_runs(100.0, 40.0, WAYS["asynchronous"], failures=[73.0])
    assert ("write", 42, 72, 40, True) in kinds(done)
    assert done.seconds["repeated work"] == [31.0]


def test_the_same_seed_gives_the_same_runs_and_another_one_others():
    a, b, c = (
        simulate_runs(1e3, 40.0, WAYS["two levels"], 100.0, runs=5, seed=s) for s in (1, 1, 2)
    )
    assert a.wall.tobytes() == b.wall.tobytes()
    assert a.phases == b.phases
    assert a.wall.tobytes() != c.wall.tobytes()


@pytest.mark.parametrize(
    ("interval", "price"),
    [
        (5e3, saved(5.0, restart=1.0)),  # no stretch is ever done
        (10.0, saved(1.0, 5e3, restart=1.0)),  # many are, and no write behind them
        (10.0, saved(1.0, restart=1e4)),  # no restart is
        (1e4, saved(1.0, 10.0, 10.0, 0.5, 1.0)),
    ],
)
def test_without_headway_it_says_so(interval, price, monkeypatch):
    monkeypatch.setattr("lib_dlhpc.simulation.failures.MOST", 1000)
    with pytest.raises(SpecError, match="no progress") as error:
        simulate_runs(1e4, interval, price, 50.0, runs=3)
    assert f"{interval:,.0f} s of training" in str(error.value)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"work": 0.0}, "work"),
        ({"interval": -1.0}, "interval"),
        ({"mtbf": float("nan")}, "mtbf"),
        ({"runs": 0}, "runs"),
        ({"runs": 1.5}, "runs"),
        ({"spares": -1, "repair": 1.0}, "spares"),
        ({"spares": 1.5, "repair": 1.0}, "spares"),
        ({"checks": Checks(9.0, 1.0, -1.0)}, "takes"),
        ({"repair": np.inf}, "spares"),
    ],
)
def test_what_cannot_be_is_named(given, name):
    with pytest.raises(SpecError, match=rf"^{name} = "):
        simulate_runs(**{"work": 100.0, "interval": 10.0, "price": saved(1.0), **given})
