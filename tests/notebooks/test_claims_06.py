"""What module 06 and its notes say is what the library computes."""

import numpy as np
import pytest

from lib_dlhpc.explore.large_batch.rules import (
    BATCHES,
    NOTABLE,
    base,
    batch_wall,
    lars_step,
    longer_step,
    mean,
    published,
    times_base,
)
from lib_dlhpc.explore.large_batch.time import WORTH, Cost, saved, seconds_to_accuracy, steps_needed
from lib_dlhpc.prediction.validation.validate import results
from lib_dlhpc.studies.large_batch import CHANCE, MNIST, Trial, outcome
from lib_dlhpc.studies.large_batch_results import (
    accuracies,
    critical_batch,
    paired,
    stored,
    stored_steps,
    tuning,
)
from lib_dlhpc.training.threads import one_thread


def spread(rate: float, batch: float, sigma: float = 1.0, steps: int = 4000) -> tuple[float, float]:
    """Steps down a valley of curvature 1, far from its floor and on it.

    Returned: noise of a step over the step, where the gradient is 1; variance of the weights in the end.
    """
    noise = sigma / batch**0.5 * np.random.default_rng(0).standard_normal((steps, 500))
    step = rate * (1 + noise)
    w = np.zeros(500)
    for each in noise:
        w = w - rate * (w + each)
    return float(step.std() / step.mean()), float(w.var())


def test_a_lower_rate_leaves_the_noise_of_a_step_against_the_step_and_a_larger_batch_does_not():
    (usual, left), (slow, fallen), (large, grown) = (
        spread(0.1, 10),
        spread(0.01, 10),
        spread(0.1, 100),
    )
    assert slow == pytest.approx(usual) and large == pytest.approx(usual / 10**0.5, rel=0.01)
    for variance, rate, batch in ((left, 0.1, 10), (fallen, 0.01, 10), (grown, 0.1, 100)):
        # In proportion to rate / batch.
        assert variance == pytest.approx(rate / batch / 2, rel=0.15)


def test_gradients_that_are_summed_and_not_divided_lengthen_a_step_of_sgd_and_not_of_lars():
    assert longer_step("sgd", 4) == pytest.approx(4) and longer_step(
        "momentum", 4
    ) == pytest.approx(4)
    assert longer_step("lars", 4) == pytest.approx(1)


def t(batch: int, first: str = "lars", second: str = "tuned") -> float:
    return paired(stored(), (first, batch), (second, batch)).t


def test_goyal_lost_nothing_at_32_times_256_and_more_than_10_points_at_256_times():
    linear = {p.x: p.y for p in published()["linear scaling"]}
    assert linear[32 * 256] - min(linear.values()) < 0.0026
    assert linear[256 * 256] - linear[32 * 256] > 0.1


def test_the_question_of_the_collapse():
    assert mean("linear", times_base(32)).mean == pytest.approx(CHANCE, abs=0.05)
    assert base().mean == pytest.approx(0.95, abs=0.005)


def test_linear_scaling_holds_to_8_times_and_collapses_at_the_next_doubling():
    assert [batch_wall(b) == "" for b in BATCHES] == [b <= times_base(8) for b in BATCHES]
    assert "collapses" in batch_wall(times_base(16))


def test_a_rate_of_its_own_closes_most_of_the_gap():
    low, high = mean("linear", times_base(32)).mean, base().mean
    assert (mean("tuned", times_base(32)).mean - low) / (high - low) > 0.8


def test_lars_wins_from_512_breaks_at_2048_and_loses_at_4000():
    assert abs(t(256)) < NOTABLE < t(512)
    assert t(1024) > NOTABLE and t(2048) > NOTABLE
    assert base().mean - mean("lars", times_base(32)).mean < 0.015
    assert "LARS breaks too" not in batch_wall(1024) and "LARS breaks too" in batch_wall(2048)
    assert t(4000) < -NOTABLE


def test_lars_and_lamb_cannot_be_distinguished():
    assert abs(t(1024, "lars", "lamb")) < NOTABLE


def test_lars_forgives_its_rate_and_sgd_does_not():
    def lost(rule: str, warm_up: float, rate: float, more: float) -> float:
        means = {r: m for r, w, m, _ in tuning(stored(), rule, 1024) if w == warm_up}
        return means[rate] - means[more]

    assert lost("lars", 4, 20, 30) < 0.01
    assert abs(lost("lars", 4, 10, 20)) < 0.001
    assert lost("tuned", 12, 0.1, 0.15) > 0.05
    assert lost("tuned", 4, 0.1, 0.15) > 0.1


@pytest.mark.slow
def test_a_smaller_rate_than_the_chosen_one_has_about_90_percent_and_lars_wins_against_it():
    trials = [Trial("test", "tuned", 1024, 0.05, 12, seed) for seed in (0, 1, 2)]
    with one_thread():
        smaller = np.mean([outcome(MNIST, trial).accuracy for trial in trials])
    assert smaller == pytest.approx(0.9, abs=0.02)
    assert mean("tuned", 1024).mean < smaller < mean("lars", 1024).mean - 0.01
    low = sorted(accuracies(stored(), "tuned", 1024).values())[:3]
    assert low[1] == pytest.approx(0.73, abs=0.01)
    assert low[2] > 0.8


def test_sgd_with_a_rate_of_its_own_depends_on_the_seed():
    assert mean("tuned", 1024).deviation > 5 * mean("lars", 1024).deviation


def test_a_growing_batch_needs_half_of_the_steps_and_is_as_good():
    grown, fallen = mean("growth", 32), mean("decay", 32)
    assert grown.steps / fallen.steps == pytest.approx(0.44, abs=0.01)
    assert abs(grown.mean - fallen.mean) < 0.005


def test_beyond_the_critical_batch_steps_hardly_fall():
    fewest, critical = critical_batch(stored_steps())
    assert (fewest, critical) == pytest.approx((47, 96), abs=1)
    assert steps_needed(4000) < 1.3 * fewest
    assert steps_needed(64) < 2.6 * fewest


def test_the_gpus_at_which_doubling_stops_paying_grow_with_the_critical_batch():
    gpus = np.array([2**k for k in range(3, 15)])

    def last(critical: int) -> int:
        return max(int(p) for p in gpus if saved(Cost(gpus=int(p), critical=critical)) > WORTH)

    assert last(4096) == 64
    assert last(65536) == 1024


def test_half_the_images_of_a_gpu_are_faster_on_the_same_many_gpus():
    half, whole = (seconds_to_accuracy(Cost(gpus=1024, images=n), 1024) for n in (16, 32))
    assert half < whole


def test_linear_scaling_from_its_derivation():
    """k steps on a gradient that stays what it is are one step of k times the rate."""
    rng = np.random.default_rng(0)
    gradients, w, eta = rng.normal(size=(8, 5)), rng.normal(size=5), 0.1
    small = w - eta * gradients.sum(axis=0)
    assert small == pytest.approx(w - 8 * eta * gradients.mean(axis=0))


@pytest.mark.parametrize("m", [0.0, 0.5, 0.9])
def test_with_momentum_a_step_is_stable_below_twice_one_plus_m(m):
    def grows(rate_times_curvature: float) -> bool:
        step = np.array([[m, rate_times_curvature], [-m, 1 - rate_times_curvature]])
        return bool(np.abs(np.linalg.eigvals(step)).max() > 1)

    assert not grows(2 * (1 + m) * 0.999)
    assert grows(2 * (1 + m) * 1.001)


def test_rate_10_moves_a_layer_by_one_percent():
    assert lars_step(1.0, 123.0, 10) == pytest.approx(0.01)


def test_the_check_on_the_critical_batch():
    def steps(ratio: float) -> float:
        return 1 + 1 / ratio

    assert (steps(4), steps(8)) == (1.25, 1.125)
    assert 1 - steps(8) / steps(4) == pytest.approx(0.1)


def test_compression_and_half_precision():
    assert float(results()["dgc18-r50"]["value"]) == 0.35
    assert "97MB to 0.35MB" in results()["dgc18-r50"]["notes"]
    assert float(np.finfo(np.float16).smallest_subnormal) == pytest.approx(6e-8, rel=0.01)


def test_ten_seeds_and_4000_images():
    assert len(MNIST.seeds) == 10 and MNIST.epochs == 20
    assert mean("lars", 4000).steps == MNIST.epochs
