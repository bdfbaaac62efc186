"""Laws of the learning rate: start, peak and decay."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.spec.training import DECAYS, Training
from lib_dlhpc.training.learning_rate import batch_at, falling, rate_at

RATES = st.floats(1e-4, 10)


@given(RATES, st.integers(1, 512), st.integers(1, 65536), st.floats(0, 10))
def test_linear_scaling_after_the_warm_up(rate, base, batch, warm_up):
    training = Training(rate=rate, base_batch=base, warm_up=warm_up)
    assert rate_at(training, warm_up, 20, batch) == pytest.approx(rate * batch / base)
    assert rate_at(Training(rate=rate), 3, 20, batch) == rate


@given(RATES, st.floats(0.5, 10), st.floats(0, 1))
def test_the_warm_up_is_a_straight_line(rate, warm_up, share):
    """From the unscaled rate (Goyal et al. 2017, section 2.2), or from 0 without a base batch."""
    for base, start in ((64, rate), (0, 0.0)):
        training = Training(rate=rate, base_batch=base, warm_up=warm_up)
        peak = rate_at(training, warm_up, 20, 512)
        expected = start + (peak - start) * share
        assert rate_at(training, share * warm_up, 20, 512) == pytest.approx(expected)


@pytest.mark.parametrize("decay", DECAYS)
def test_a_decay_starts_at_one_and_never_rises(decay):
    training = Training(decay=decay, warm_up=2.0, steps_at=5.0)
    left = [falling(training, 2 + k / 10, 20) for k in range(180)]
    assert left[0] == 1 and all(a >= b >= 0 for a, b in itertools.pairwise(left))


def test_each_decay_is_its_papers():
    at = {"warm_up": 2.0, "steps_at": 6.0}
    middle, end = 11.0, 20.0  # half of the epochs after the warm-up
    assert falling(Training(decay="cosine", **at), middle, end) == pytest.approx(0.5)
    assert falling(Training(decay="cosine", **at), end, end) == pytest.approx(0)
    assert falling(Training(decay="quadratic", **at), middle, end) == pytest.approx(0.25)
    steps = [falling(Training(decay="step", **at), epoch, end) for epoch in (5.9, 6, 12, 18)]
    assert steps == pytest.approx([1, 0.1, 0.01, 0.001])
    assert falling(Training(decay="growth", **at), middle, end) == 1
    assert falling(Training(**at), middle, end) == 1


@given(st.integers(1, 100), st.integers(1, 10_000), st.integers(0, 12))
def test_the_batch_grows_where_the_rate_would_fall(batch, samples, epoch):
    """Tenfold at each fall of "step" (Smith et al. 2018), so rate / batch is the same for both."""
    growing, steps = Training(decay="growth", steps_at=4.0), Training(decay="step", steps_at=4.0)
    size = batch_at(growing, epoch, batch, samples)
    fall = falling(steps, epoch, 20)
    assert size == min(round(batch / fall), samples)
    assert batch_at(steps, epoch, batch, samples) == min(batch, samples)
