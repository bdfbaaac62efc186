"""Scatter is no finding, however often one looks; what is not scatter is, with its amount."""

import numpy as np
import pytest

from lib_dlhpc.timeline.analysis.scatter import FEW, judge, student


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 20, 100, 1000])
def test_of_many_draws_of_scatter_almost_none_is_reported(count):
    """Scatter of 4 % of an occasion: at most one in a thousand draws; one in a hundred where occasions are few."""
    rng = np.random.default_rng(count)
    span, drawn = float(count), rng.normal(0.0, 0.04, (4000, count))
    verdicts = [judge(one, np.maximum(one, 0.0), span) for one in drawn]
    reported = sum(verdict is not None for verdict in verdicts)
    assert reported <= (40 if count < FEW else 4)


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
