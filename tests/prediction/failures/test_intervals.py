"""Laws of intervals: Daly's published optima, one formula for every way to save, and its true minimum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.costs.checkpoints import CheckpointCost
from lib_dlhpc.prediction.failures.intervals import (
    best_interval,
    daly,
    daly_first_order,
    exact,
    expected_cycle,
    goodput,
    mean_restart,
    system_mtbf,
    young,
)

MINUTE, HOUR, YEAR = 60.0, 3600.0, 365 * 86400.0


def saved(blocked, background=0.0, restart=0.0, survived=0.0, local=0.0):
    return CheckpointCost(0, 0, blocked, background, 0.0, restart, survived, local)


@pytest.mark.parametrize(
    ("mtbf", "published"), [(24 * HOUR, 117), (6 * HOUR, 57), (15 * MINUTE, 9.1)]
)
def test_the_optima_of_dalys_figures(mtbf, published):
    """Daly 2006, figures 3 to 5: R = 10 min, delta = 5 min."""
    assert daly(5 * MINUTE, mtbf) / MINUTE == pytest.approx(
        published, abs=0.5 if mtbf > 1e3 else 0.05
    )
    assert exact(5 * MINUTE, mtbf) == pytest.approx(daly(5 * MINUTE, mtbf), rel=3e-3)


def test_youngs_formula_on_a_published_example():
    """Low et al. 2012 (Distributed GraphLab), section 4.3: 64 machines of a year each, 2 minutes: 3 hours."""
    assert young(2 * MINUTE, system_mtbf(YEAR, 64)) / HOUR == pytest.approx(3, abs=0.05)


def test_first_order_forms_agree_where_a_checkpoint_is_short():
    cost, mtbf = 1.0, 1e9
    found = [young(cost, mtbf), daly_first_order(cost, mtbf), daly(cost, mtbf), exact(cost, mtbf)]
    np.testing.assert_allclose(found, found[0], rtol=1e-4)
    assert daly_first_order(300.0, 100.0) == 0
    assert daly(300.0, 100.0) == 100.0


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e9), st.floats(0, 1e4))
def test_exact_is_the_minimum_of_dalys_complete_model(cost, mtbf, restart):
    best = exact(cost, mtbf)
    assert 0 < best <= mtbf
    near = best * np.array([0.9, 0.99, 1.0, 1.01, 1.1])
    # The exponents of cost and restart are the same for all, and would overflow.
    model = np.expm1((near + cost) / mtbf) / near if cost < 500 * mtbf else None
    if model is not None:
        assert model[2] <= model.min() * (1 + 1e-12)


@given(st.floats(1, 1e3), st.floats(1e2, 1e6), st.floats(0, 1e3), st.floats(1, 1e4))
def test_synchronous_is_dalys_complete_model(cost, mtbf, restart, tau):
    model = mtbf * np.exp(restart / mtbf) * np.expm1((tau + cost) / mtbf)
    assert expected_cycle(tau, saved(cost, restart=restart), mtbf) == pytest.approx(model, rel=1e-9)


def test_without_failures_a_cycle_is_training_and_standstill():
    assert expected_cycle(100.0, saved(5.0, 30.0, 7.0), np.inf) == 105.0
    assert expected_cycle(10.0, saved(5.0, 30.0, 7.0), np.inf) == 35.0
    assert goodput(100.0, saved(5.0), np.inf) == 100 / 105
    assert best_interval(saved(5.0, 30.0), np.inf) == exact(5.0, np.inf) == np.inf


@given(
    st.floats(0.1, 50), st.floats(0, 90), st.floats(0, 100), st.floats(0, 1), st.floats(100, 1e5)
)
def test_a_write_behind_training_multiplies_the_cycle(cost, write, restart, survived, mtbf):
    tau = 100.0
    there = saved(cost, write, restart, survived, restart / 2)
    k = mtbf + mean_restart(there, mtbf)
    factor = survived + (1 - survived) * np.exp(write / mtbf)
    expected = k * np.expm1((tau + cost) / mtbf) * factor
    assert expected_cycle(tau, there, mtbf) == pytest.approx(expected, rel=1e-9)


@given(st.floats(0.1, 50), st.floats(0, 1e3), st.floats(0, 1), st.floats(2e3, 1e6))
def test_the_best_interval_is_the_best(cost, write, survived, mtbf):
    there = saved(cost, write, 50.0, survived, 5.0)
    best = best_interval(there, mtbf)
    others = best * np.concatenate([np.linspace(0.05, 1, 40), np.linspace(1, 20, 40)])
    assert goodput(best, there, mtbf) >= goodput(others, there, mtbf).max() * (1 - 1e-12)
    assert 0 < goodput(best, there, mtbf) < 1


def test_nothing_to_write_is_written_all_the_time_and_no_headway_is_no_goodput():
    assert exact(0.0, 100.0) == best_interval(saved(0.0), 100.0) == 0
    assert goodput(1e6, saved(1.0), 1.0) == 0
    assert goodput(1.0, saved(1.0, restart=1e6), 1.0) == 0


def test_worse_machines_and_dearer_checkpoints_never_help():
    base = {"blocked": 5.0, "background": 20.0, "restart": 60.0, "survived": 0.5, "local": 10.0}
    rising = np.array([0.0, 1.0, 10.0, 50.0, 200.0])
    for name in ("blocked", "background", "restart", "local"):
        share = goodput(100.0, saved(**{**base, name: rising}), 3600.0)
        assert (np.diff(share) < 0).all(), name
    assert (np.diff(goodput(100.0, saved(**base), np.array([1e2, 1e3, 1e4, np.inf]))) > 0).all()
    surviving = saved(**{**base, "survived": np.array([0.0, 0.5, 1.0])})
    assert (np.diff(goodput(100.0, surviving, 3600.0)) > 0).all()
