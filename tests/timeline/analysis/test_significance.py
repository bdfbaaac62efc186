"""Scatter is no finding, however often one looks; what is not scatter is, with its amount."""

import numpy as np
import pytest

from lib_dlhpc.timeline.analysis.significance import FEW, above, judge, student


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 20, 100, 1000])
def test_of_many_draws_of_scatter_almost_none_is_reported(count):
    """Scatter of 4% of an occasion: at most one in a thousand draws; one in a hundred where occasions are few."""
    rng = np.random.default_rng(count)
    span, drawn = float(count), rng.normal(0.0, 0.04, (4000, count))
    verdicts = [judge(one, np.maximum(one, 0.0), span) for one in drawn]
    reported = sum(verdict is not None for verdict in verdicts)
    assert reported <= (40 if count < FEW else 4)


@pytest.mark.parametrize("count", [8, 20, 100])
@pytest.mark.parametrize("delay", [5.0, -5.0])
def test_one_long_delay_does_not_hide_what_is_there_all_along(count, delay):
    """The machine holds up one rank or the other for as long as five occasions, once."""
    one = np.random.default_rng(count).normal(0.12, 0.01, count)
    one[3] += delay
    cost = np.maximum(one, 0.0)
    verdict = judge(one, cost, float(count) + 5.0)
    assert verdict.counted.all() and verdict.seconds == pytest.approx(cost.sum())


@pytest.mark.parametrize("count", [4, 5, 8, 20, 100, 1000])
def test_a_tenth_more_is_reported_amid_scatter(count):
    rng = np.random.default_rng(count)
    missed = 0
    for _ in range(200):
        one = rng.normal(0.12, 0.02, count)
        verdict = judge(one, np.maximum(one, 0.0), float(count))
        missed += verdict is None
        assert verdict is None or verdict.seconds == pytest.approx(0.12 * count, rel=0.4)
    assert missed <= (40 if count < 8 else 0)


def test_less_than_the_least_is_never_reported():
    even = np.full(100, 0.0199)
    assert judge(even, even, 100.0) is None
    assert judge(even * 1.01, even * 1.01, 100.0).seconds == pytest.approx(2.0099)


def test_one_long_wait_is_counted_without_the_scatter():
    rng = np.random.default_rng(0)
    lag = rng.normal(0.0, 0.01, 500)
    lag[77] = 20.0
    verdict = judge(lag, np.maximum(lag, 0.0), 500.0)
    assert verdict.counted.sum() == 1 and verdict.seconds == pytest.approx(20.0)
    lag[78] = -15.0  # it goes the other way as far
    assert judge(lag, np.maximum(lag, 0.0), 500.0) is None


def test_few_occasions_must_differ_by_more_of_their_errors():
    assert student(10**6) == pytest.approx(4.0, rel=1e-3)
    ladder = [student(freedom) for freedom in (3, 5, 10, 30, 100)]
    assert ladder == sorted(ladder, reverse=True) and ladder[0] > 30


def test_of_fewer_than_four_occasions_nothing_is_said_however_much_they_cost():
    for count in range(FEW + 1):
        one = np.full(count, 0.9)
        assert (judge(one, one, float(count)) is None) == (count < FEW)


def test_what_happened_to_another_rank_as_well_is_not_exceptional():
    lag = np.zeros(500)
    lag[77] = 20.0
    for theirs, told in ((9.0, True), (11.0, False), (-11.0, False)):
        verdict = judge(lag, lag, 500.0, np.array([0.1, theirs]))
        assert (verdict is not None) == told


def test_an_exceptional_occasion_costs_ten_usual_ones():
    """The same two seconds: long beside occasions of a tenth of a second, nothing beside those of one."""
    lag = np.zeros(100)
    lag[7] = 2.0
    assert judge(lag, lag, 10.0).seconds == 2.0
    assert judge(lag, lag, 100.0) is None


@pytest.mark.parametrize("ranks", [2, 3, 4, 9])
def test_no_rank_is_above_its_equals_on_average_nor_for_one_that_has_less_to_do(ranks):
    rng = np.random.default_rng(ranks)
    delays = rng.exponential(1.0, (ranks, 20_000))
    assert (above(delays).mean(axis=1) < 0.05).all()
    values = rng.normal(0.0, 1.0, (ranks, 1000))
    others = [np.delete(values, rank, axis=0) for rank in range(ranks)]
    most = [np.maximum(one.mean(axis=0), np.median(one, axis=0)) for one in others]
    np.testing.assert_allclose(above(values), values - most)
    if ranks > 4:
        values[0] -= 10.0  # above the mean of the others all of them are by more than 1
        assert (above(values)[1:].mean(axis=1) < 0.5).all()
