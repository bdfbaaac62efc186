"""Laws of waiting for the slowest, against a simulation with a fixed seed."""

import numpy as np
import pytest

from lib_dlhpc.costs.stragglers import bounded_wait, largest_of, slowest


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


@pytest.mark.parametrize("ranks", [2, 16, 256])
@pytest.mark.parametrize("steps", [1, 4, 25])
def test_the_slowest_sum_of_draws_is_waited_for_with_its_root(ranks, steps):
    draws = np.random.default_rng(7).normal(1.0, 0.1, (200_000 // ranks, steps, ranks))
    met = draws.mean(axis=1).max(axis=1).mean()
    assert met - 1 == pytest.approx(slowest(ranks, 0.1, steps) - 1, rel=0.06)


@pytest.mark.parametrize("ranks", [2, 4, 16, 64])
@pytest.mark.parametrize("ahead", [1, 2])
def test_a_bound_on_being_ahead_makes_ranks_wait_as_a_recursion_says(ranks, ahead):
    """A step begins when the rank is free and the slowest is at most `ahead` steps behind."""
    jitter, steps, copies = 0.1, 4000, 16
    rng = np.random.default_rng(5)
    free, over = np.zeros((copies, ranks)), []
    for step in range(steps):
        if step > ahead:
            free = np.maximum(free, over[step - 1 - ahead][:, None])
        free = free + rng.normal(1.0, jitter, (copies, ranks))
        over.append(free.max(axis=1))
    waited = (over[-1] - over[steps // 4]).mean() / (steps - 1 - steps // 4) - 1
    assert waited == pytest.approx(bounded_wait(1.0, 1.0, ranks, jitter, ahead), rel=0.2)


def test_the_looser_the_bound_the_shorter_the_wait():
    ahead = np.array([1, 2, 4, 8, 1000])
    for jitter in (0.05, 0.5, 2.0):
        waits = bounded_wait(1.0, 1.2, 64, jitter, ahead)
        assert (np.diff(waits) < 0).all()
        assert (waits <= slowest(64, jitter, ahead + 1) - 1).all()
    assert bounded_wait(1.0, 1.2, 64, 0.1, 0) == 0  # no bound at all
    assert bounded_wait(1.0, 1.2, 1, 0.1, 3) == 0 and bounded_wait(1.0, 1.2, 64, 0.0, 3) == 0
