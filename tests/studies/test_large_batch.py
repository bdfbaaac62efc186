"""The large-batch runs: the loop is the trainer's, a validation split chooses rates, stored results hold."""

from dataclasses import replace

import numpy as np
import pytest

from lib_dlhpc.studies import large_batch_steps
from lib_dlhpc.studies.large_batch import (
    CHANCE,
    DIGITS,
    MNIST,
    Outcome,
    Trial,
    best,
    candidates,
    experiment_of,
    finals,
    outcome,
    samples_of,
)
from lib_dlhpc.studies.large_batch_results import (
    accuracies,
    as_text,
    batches,
    critical_batch,
    mean_of,
    paired,
    steps_to_target,
    stored,
    stored_steps,
    tuning,
    write,
)
from lib_dlhpc.studies.large_batch_steps import Arrival, arrival
from lib_dlhpc.training.data import load
from lib_dlhpc.training.single_rank import SingleRank
from lib_dlhpc.training.threads import one_thread
from lib_dlhpc.training.trainer import train

SHORT = replace(DIGITS, epochs=3)
T_5_PERCENT = 2.26  # Student's t, two sides, 9 degrees of freedom
BASE = MNIST.base_batch


@pytest.fixture(autouse=True)
def alone():
    with one_thread():
        yield


@pytest.mark.parametrize(("rule", "batch", "rate"), [("linear", 128, 0.02), ("lars", 500, 10.0)])
def test_the_loop_is_that_of_the_trainer(rule, batch, rate):
    trial = Trial("test", rule, batch, rate, 1.0, 7)
    run = train(experiment_of(SHORT, trial), SingleRank())
    mine = outcome(SHORT, trial)
    assert mine.accuracy == run.accuracy
    assert mine.steps * batch >= run.samples > (mine.steps - 3) * batch


def test_a_run_that_diverges_counts_as_chance():
    with np.errstate(all="ignore"):
        result = outcome(SHORT, Trial("test", "linear", 512, 40.0, 0.0, 0))
    assert result.accuracy == CHANCE
    assert result.steps < 9


def test_the_validation_split_holds_no_test_sample_and_no_sample_twice():
    experiment = experiment_of(DIGITS, candidates(DIGITS)[0])
    whole, part = load(experiment), samples_of(experiment, "validation")
    assert np.array_equal(np.concatenate([part.x, part.test_x]), whole.x)
    assert len(part.test_x) == pytest.approx(len(whole.x) / 5, abs=1)
    assert samples_of(experiment, "test").test_x.shape == whole.test_x.shape


def test_tuning_seeds_are_not_evaluation_seeds():
    for study in (MNIST, DIGITS):
        assert not set(study.seeds) & set(study.tuning_seeds)
        assert len(study.seeds) >= 5


def test_the_best_rate_has_the_best_mean():
    tried = [
        Outcome(Trial("validation", "lars", 512, rate, 4.0, seed), accuracy, 1)
        for rate, seed, accuracy in ((1, 0, 0.9), (1, 1, 0.1), (2, 0, 0.6), (2, 1, 0.6))
    ]
    assert best(tried, "lars", 512) == (2, 4.0)
    tied = [
        Outcome(Trial("validation", "lars", 512, 1, 4.0, seed), 0.4 + seed / 2.5, 1)
        for seed in (0, 1)
    ]
    assert best([*tied, *tried[2:]], "lars", 512) == (2, 4.0)


def test_the_stored_table_covers_the_study():
    tried = [row for row in stored() if row.trial.split == "validation"]
    assert {row.trial for row in tried} == set(candidates(MNIST))
    assert {row.trial for row in stored()} == {*candidates(MNIST), *finals(MNIST, tried)}
    assert len(stored()) == len({row.trial for row in stored()})
    assert all(0 <= row.accuracy <= 1 for row in stored())


def test_linear_scaling_holds_to_8_times_the_base_batch():
    for factor in (2, 4, 8):
        loss = (
            mean_of(stored(), "linear", BASE).mean - mean_of(stored(), "linear", factor * BASE).mean
        )
        assert loss < 0.015


def test_linear_scaling_collapses_at_32_times_the_base_batch():
    assert mean_of(stored(), "linear", 32 * BASE).mean <= 0.4
    assert max(accuracies(stored(), "linear", 32 * BASE).values()) <= 0.4


def test_lars_at_32_times_is_near_the_base_and_beats_tuned_sgd_seed_by_seed():
    at = 32 * BASE
    loss = mean_of(stored(), "linear", BASE).mean - mean_of(stored(), "lars", at).mean
    gain = paired(stored(), ("lars", at), ("tuned", at))
    print(f"LARS below the base by {loss:.2%}; above SGD by {gain.mean:.2%}, t = {gain.t:.1f}")
    assert loss < 0.015
    assert gain.mean > 0 and gain.t > T_5_PERCENT


def test_beyond_that_both_break():
    reference = mean_of(stored(), "linear", BASE).mean
    for batch in (64 * BASE, 4000):
        for rule in ("tuned", "lars"):
            assert mean_of(stored(), rule, batch).mean < reference - 0.03


def test_a_tuned_rate_closes_most_of_the_gap():
    reference = mean_of(stored(), "linear", BASE).mean
    for batch in (32 * BASE, 64 * BASE, 4000):
        collapsed = mean_of(stored(), "linear", batch).mean
        tuned = mean_of(stored(), "tuned", batch).mean
        assert (tuned - collapsed) / (reference - collapsed) > 0.7


def test_a_growing_batch_is_as_good_as_a_falling_rate_in_half_the_steps():
    grown, fallen = (mean_of(stored(), rule, BASE) for rule in ("growth", "decay"))
    assert abs(grown.mean - fallen.mean) < 0.01
    assert grown.steps < 0.5 * fallen.steps


def test_means_and_paired_differences_by_hand(tmp_path):
    rows = [
        Outcome(Trial("test", rule, 8, 0.1, 1.0, seed), value, 5)
        for rule, values in (("lars", (0.9, 0.8, 1.0)), ("tuned", (0.8, 0.8, 0.7)))
        for seed, value in enumerate(values)
    ]
    assert mean_of(rows, "lars", 8)[:2] == pytest.approx((0.9, 0.1))
    difference = np.array([0.1, 0.0, 0.3])
    p = paired(rows, ("lars", 8), ("tuned", 8))
    t = difference.mean() / (difference.std(ddof=1) / np.sqrt(3))
    assert (p.mean, p.t, p.seeds) == pytest.approx((difference.mean(), t, 3))
    assert paired(rows, ("lars", 8), ("lars", 8)).t == 0
    assert batches(rows, "lars") == [8]
    with pytest.raises(KeyError, match="no runs of 'lamb' at batch 8"):
        mean_of(rows, "lamb", 8)
    write(rows, tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text("utf-8").count("\n") == 7


def test_the_text_holds_every_rule_and_the_t_values():
    text = as_text(MNIST, stored())
    for rule in MNIST.rules:
        assert rule in text
    assert "LARS minus tuned at 1,024" in text
    assert tuning(stored(), "linear", 32) == []


@pytest.mark.parametrize(("fewest", "critical"), [(50.0, 100.0), (500.0, 7.0)])
def test_the_fit_finds_the_law_it_is_made_from(fewest, critical):
    rows = [
        Arrival(batch, 0.1, seed, round(1e6 * fewest * (1 + critical / batch)))
        for batch in (8, 64, 512, 4096)
        for seed in (0, 1)
    ]
    assert critical_batch(rows) == pytest.approx((1e6 * fewest, critical), rel=1e-3)


def test_stored_steps_fall_with_the_batch_and_then_hardly_any_more():
    points = {batch: mean for batch, (mean, _) in steps_to_target(stored_steps()).items()}
    assert list(points) == list(large_batch_steps.BATCHES)
    fewest, critical = critical_batch(stored_steps())
    assert points[8] > 3 * points[128]
    assert points[512] < 1.6 * points[4000]
    assert 16 < critical < 1000
    for batch, mean in points.items():
        assert mean == pytest.approx(fewest * (1 + critical / batch), rel=0.6)


def test_a_run_stops_at_the_target_or_at_the_step_limit(monkeypatch):
    monkeypatch.setattr(large_batch_steps, "TARGET", 0.5)
    there = arrival(512, 0.04, 0)
    assert 1 < there.steps < 60
    assert arrival(512, 0.04, 0, most=2).steps == 2
    with np.errstate(all="ignore"):
        assert arrival(512, 1e3, 0).steps == large_batch_steps.MOST


@pytest.mark.slow
def test_on_digits_linear_scaling_holds_breaks_and_recovers():
    def mean(rule, batch, rate):
        runs = [outcome(DIGITS, Trial("test", rule, batch, rate, 8, seed)) for seed in (0, 1)]
        return float(np.mean([run.accuracy for run in runs]))

    base = mean("linear", 16, 0.02)
    assert base > 0.95
    assert mean("linear", 8 * 16, 0.02) > base - 0.02
    assert mean("linear", 32 * 16, 0.02) < 0.4
    healed = mean("lars", 32 * 16, 10.0)
    assert healed > base - 0.03
    assert healed > mean("tuned", 32 * 16, 0.05)
