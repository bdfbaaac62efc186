"""Laws of silent errors: simulated runs take what the formula says, and checks at its best interval lose least."""

import numpy as np
import pytest

from lib_dlhpc import SpecError
from lib_dlhpc.costs.checkpoints import CheckpointCost, Checks
from lib_dlhpc.prediction.failures.intervals import expected_cycle, goodput
from lib_dlhpc.prediction.failures.silent import best_check, checked_cycle, checked_goodput
from lib_dlhpc.prediction.failures.silent import first_order_check as first_order
from lib_dlhpc.simulation import simulate_runs

INTERVAL, MTBF = 40.0, 200.0


def saved(blocked, background=0.0, restart=0.0, survived=0.0, local=0.0):
    return CheckpointCost(0, 0, blocked, background, 0.0, restart, survived, local)


SYNCHRONOUS = saved(5.0, restart=10.0)
LEVELS = saved(2.0, 30.0, 20.0, 0.7, 5.0)


@pytest.mark.parametrize("price", [SYNCHRONOUS, LEVELS], ids=["synchronous", "two levels"])
@pytest.mark.parametrize("every", [INTERVAL, 4 * INTERVAL])
def test_simulated_runs_take_what_the_formula_says(price, every):
    checks = Checks(600.0, every, 10.0)
    work = 24 * INTERVAL
    found = simulate_runs(work, INTERVAL, price, MTBF, runs=3000, seed=1, checks=checks)
    expected = work / every * checked_cycle(INTERVAL, price, MTBF, checks)
    # 3,000 runs: four standard errors, and half a percent for what the ends of a run differ from its middle
    bound = 4 * found.wall.std() / np.sqrt(3000) + 0.005 * expected
    assert found.wall.mean() == pytest.approx(expected, abs=bound)
    np.testing.assert_allclose(sum(found.seconds.values()), found.wall)
    assert (found.seconds["check"] >= work / every * 10.0 - 1e-9).all()


def test_by_hand_an_error_costs_its_interval_a_check_and_a_restart():
    """Without failures: two segments and a check, trained 1 / p times on the mean, p of no error in them."""
    checks = Checks(600.0, 80.0, 7.0)
    p = np.exp(-80 / 600)
    by_hand = (2 * 45 + 7) / p + (1 / p - 1) * 10
    assert checked_cycle(INTERVAL, SYNCHRONOUS, np.inf, checks) == pytest.approx(by_hand)


def test_errors_at_given_times_are_found_by_the_next_check():
    """By hand: segments of 40 + 5 s, a check of 7 s after two of them, a restart of 10 s."""
    run = simulate_runs(
        160.0,
        40.0,
        SYNCHRONOUS,
        failures=[130.0],
        errors=[42.0, 60.0, 120.0],  # while saving; in training; in what the failure takes away
        checks=Checks(np.inf, 80.0, 7.0),
    )
    assert [(p.kind, p.start, p.stop, p.done) for p in run.phases if p.kind != "training"] == [
        ("checkpoint", 40, 45, 40),
        ("silent error", 60, 60, 55),
        ("checkpoint", 85, 90, 80),
        ("check", 90, 97, 80),
        ("restart", 97, 107, 0),
        ("silent error", 120, 120, 13),
        ("repeated work", 107, 130, 23),
        ("restart", 130, 140, 0),
        ("repeated work", 140, 180, 40),
        ("checkpoint", 180, 185, 40),
        ("repeated work", 185, 225, 80),
        ("checkpoint", 225, 230, 80),
        ("check", 230, 237, 80),
        ("checkpoint", 277, 282, 120),
        ("checkpoint", 322, 327, 160),
        ("check", 327, 334, 160),
    ]
    assert run.wall == [334.0] and run.seconds["check"] == [21.0]


def test_a_checked_state_that_a_failure_takes_away_is_checked_again():
    """By hand: the check at 40 passes, but the failure strikes before that state is written."""
    run = simulate_runs(
        80.0,
        40.0,
        saved(0.0, 30.0, 10.0),
        failures=[57.0],
        errors=[80.0],
        checks=Checks(np.inf, 40.0, 7.0),
    )
    assert [(p.kind, p.start, p.stop, p.done) for p in run.phases if p.kind != "training"] == [
        ("check", 40, 47, 40),
        ("write", 40, 57, 40),
        ("restart", 57, 67, 0),
        ("silent error", 80, 80, 13),
        ("repeated work", 67, 107, 40),
        ("check", 107, 114, 40),
        ("restart", 114, 124, 0),
        ("repeated work", 124, 164, 40),
        ("check", 164, 171, 40),
        ("write", 164, 194, 40),
        ("repeated work", 171, 181, 50),
        ("check", 211, 218, 80),
    ]


def test_without_silent_errors_only_the_checks_are_added():
    checks = Checks(np.inf, 80.0, 7.0)
    alone = 2 * expected_cycle(INTERVAL, SYNCHRONOUS, np.inf)
    assert checked_cycle(INTERVAL, SYNCHRONOUS, np.inf, checks) == pytest.approx(alone + 7.0)
    assert best_check(INTERVAL, SYNCHRONOUS, MTBF, checks) == np.inf
    without = Checks(np.array([np.inf, 500.0]), np.inf, 7.0)
    found = checked_goodput(INTERVAL, SYNCHRONOUS, MTBF, without)
    assert list(found) == [goodput(INTERVAL, SYNCHRONOUS, MTBF), 0.0]


def test_where_training_makes_no_headway_no_check_is_best():
    checks = Checks(500.0, 80.0, 7.0)
    assert np.isnan(best_check(INTERVAL, SYNCHRONOUS, 1e-3, checks))
    assert checked_goodput(INTERVAL, SYNCHRONOUS, 1e-3, checks) == 0


@pytest.mark.parametrize("mtbf", [MTBF, np.inf])
@pytest.mark.parametrize("price", [SYNCHRONOUS, LEVELS, saved(0.0, restart=300.0)])
def test_the_best_interval_between_checks_has_the_highest_goodput(price, mtbf):
    silent, takes = np.array([500.0, 1e4, 1e7]), 10.0
    best = best_check(INTERVAL, price, mtbf, Checks(silent, 1.0, takes))
    at = [
        checked_goodput(INTERVAL, price, mtbf, Checks(silent, f * best, takes))
        for f in (1, 0.99, 1.01)
    ]
    assert (at[0] >= at[1]).all() and (at[0] >= at[2]).all()


def test_to_first_order_it_is_youngs_without_the_two():
    """For V << M_s << M, where a restart is short."""
    free = saved(0.0)
    best = best_check(1.0, free, np.inf, Checks(1e8, 1.0, 10.0))
    assert first_order(10.0, 1e8) == pytest.approx(np.sqrt(10.0 * 1e8))
    assert best == pytest.approx(first_order(10.0, 1e8), rel=1e-3)


def test_errors_more_often_than_checks_make_no_progress(monkeypatch):
    monkeypatch.setattr("lib_dlhpc.simulation.failures.MOST", 20)
    with pytest.raises(SpecError, match="check more often"):
        simulate_runs(1e3, 40.0, SYNCHRONOUS, checks=Checks(5.0, 80.0, 1.0))


@pytest.mark.parametrize(
    ("checks", "name"), [(Checks(0.0, 40.0, 1.0), "silent_mtbf"), (Checks(9.0, -1.0, 1.0), "every")]
)
def test_what_cannot_be_is_named(checks, name):
    with pytest.raises(SpecError, match=rf"^{name} = "):
        simulate_runs(100.0, 40.0, SYNCHRONOUS, checks=checks)
