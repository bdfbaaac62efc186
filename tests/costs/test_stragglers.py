"""Laws of waiting for the slowest, against a simulation with a fixed seed."""

import numpy as np
import pytest

from lib_dlhpc.costs.stragglers import largest_of, slowest


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16, 64, 256, 1024])
def test_the_largest_of_p_normal_numbers_to_five_percent(ranks):
    draws = np.random.default_rng(7).standard_normal((4_000_000 // max(ranks, 64), ranks))
    assert largest_of(ranks) == pytest.approx(draws.max(axis=1).mean(), rel=0.05)


def test_two_and_three_have_closed_forms():
    assert largest_of(2) == pytest.approx(1 / np.sqrt(np.pi), rel=0.05)
    assert largest_of(3) == pytest.approx(1.5 / np.sqrt(np.pi), rel=0.05)


def test_one_waits_for_nobody_and_more_wait_longer():
    assert largest_of(1) == 0 and slowest(1, 0.5) == 1
    assert (np.diff(largest_of(np.arange(1, 5000))) > 0).all()
    assert slowest(100, 0.0) == 1
    assert slowest(100, 0.2) - 1 == pytest.approx(2 * (slowest(100, 0.1) - 1))
