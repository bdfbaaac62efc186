"""A steady step: terms sum to the median, outliers and the first steps do not count, causes are distinguished."""

import numpy as np
import pytest

from lib_dlhpc.comparison.steady import WARM_UP, steady, steps_of
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import from_rows


def _timeline(steps, ranks=1, gap=0.0, **seconds):
    """Return steps of each rank, of rows in the order given; seconds: of a kind, or a function (step, rank) of it."""
    rows = []
    for rank in range(ranks):
        now = 0.0
        for step in range(steps):
            for kind, length in seconds.items():
                lasts = length(step, rank) if callable(length) else length
                rows.append((rank, "compute", kind, kind, now, now + lasts))
                now += lasts
            now += gap
    return from_rows(rows, ranks, "measured")


def test_terms_sum_to_the_median_and_each_kind_has_its_own():
    kinds = {"input": 1.0, "forward": 2.0, "backward": 4.0, "wait": 3.0, "checkpoint": 0.5}
    found = steady([steps_of(_timeline(12, gap=0.25, **kinds, update=1.5))])
    assert found.step == pytest.approx(12.25) == sum(found.terms.values())
    wanted = {"input stall": 1.0, "forward": 2.0, "backward": 4.0, "exposed communication": 3.0}
    wanted |= {"checkpoint": 0.5, "update": 1.5, "other": 0.25}
    assert {n: s for n, s in found.terms.items() if s > 1e-9} == pytest.approx(wanted)


def test_what_a_rank_computes_less_than_the_slowest_it_waits_and_no_more():
    def forward(step, rank):
        return (1.0, 3.0)[rank]

    def wait(step, rank):
        return (2.5, 0.5)[rank]

    timeline = _timeline(9, 2, forward=forward, wait=wait, update=1.0)
    found = steady([steps_of(timeline)])
    assert found.terms["waiting for the slowest"] == pytest.approx(1.0)  # 2 on one of two ranks
    assert found.terms["exposed communication"] == pytest.approx(0.5)


def test_a_rank_waits_for_the_slowest_no_longer_than_it_waits():
    def forward(step, rank):
        return (1.0, 3.0)[rank]

    def wait(step, rank):
        return (1.5, 0.0)[rank]

    found = steady([steps_of(_timeline(9, 2, forward=forward, wait=wait, update=1.0))])
    assert found.terms["waiting for the slowest"] == pytest.approx(0.75)
    assert found.terms["exposed communication"] == 0


def test_in_a_pipeline_a_stage_with_less_compute_starts_later():
    def forward(step, rank):
        return (1.0, 3.0)[rank]

    def bubble(step, rank):
        return (2.0, 0.0)[rank]

    timeline = _timeline(9, 2, forward=forward, bubble=bubble, wait=0.5, update=1.0)
    found = steady([steps_of(timeline)])
    assert found.terms["waiting for the slowest"] == 0
    assert found.terms["exposed communication"] == pytest.approx(0.5)
    assert found.terms["pipeline bubble"] == pytest.approx(1.0)


def test_the_first_steps_and_rare_slow_ones_do_not_count():
    def forward(step, rank):
        return 100.0 if step < WARM_UP else 30.0 if step % 10 == 9 else 1.0

    found = steady([steps_of(_timeline(40, forward=forward, update=1.0))])
    assert found.step == pytest.approx(2.0)
    assert found.steps == 40 - WARM_UP


def test_the_first_step_of_an_epoch_does_not_count():
    def forward(step, rank):
        return 50.0 if step % 2 == 0 else 1.0

    timeline = _timeline(20, forward=forward, update=1.0)
    assert steady([steps_of(timeline, epoch=2)]).high == pytest.approx(2.0)
    assert steady([steps_of(timeline)]).high == pytest.approx(51.0)


def test_saving_at_the_end_of_an_epoch_is_no_part_of_a_step():
    def checkpoint(step, rank):
        return 5.0 if step else 0.0

    timeline = _timeline(12, checkpoint=checkpoint, forward=1.0, update=1.0)
    found = steady([steps_of(timeline, epoch=1)])
    assert found.terms["checkpoint"] == 0
    assert (found.step, found.high) == pytest.approx((2.0, 2.0))


def test_saving_by_the_clock_within_an_epoch_is_part_of_a_step():
    found = steady([steps_of(_timeline(12, checkpoint=5.0, forward=1.0, update=1.0), epoch=6)])
    assert found.terms["checkpoint"] == pytest.approx(5.0)


def test_a_few_steps_are_all_there_is():
    assert steady([steps_of(_timeline(1, forward=1.0, update=1.0))]).step == pytest.approx(2.0)
    assert steady([steps_of(_timeline(3, forward=1.0, update=1.0))]).steps == 2


def test_equal_runs_are_merged():
    quick, slow = (steps_of(_timeline(13, forward=f, update=1.0)) for f in (1.0, 3.0))
    both = steady([quick, slow])
    assert both.steps == 20
    assert (both.low, both.high) == pytest.approx((2.0, 4.0))


def test_local_steps_between_two_averages_are_reported_as_one():
    def wait(step, rank):
        return 4.0 if step % 4 == 3 else 0.0

    found = steady([steps_of(_timeline(40, forward=1.0, update=1.0, wait=wait), together=4)])
    assert found.step == pytest.approx(3.0)
    assert found.terms["exposed communication"] == pytest.approx(1.0)


def test_a_run_without_updates_has_no_steps():
    with pytest.raises(ValueError, match="no update"):
        steps_of(_timeline(3, forward=1.0))


def test_a_simulated_run_without_jitter_is_what_was_predicted(digits):
    two = digits.set({"strategy.devices_per_node": 2, "machine.jitter": 0.0})
    found = steady([steps_of(simulate(two, steps=8))])
    predicted = predict(two)
    assert found.step == pytest.approx(float(predicted.step_time))
    for name, seconds in predicted.terms.items():
        assert found.terms[name] == pytest.approx(float(seconds), abs=1e-12), name


def test_a_step_is_the_mean_of_the_ranks():
    def forward(step, rank):
        return (1.0, 2.0)[rank]

    assert np.allclose(steps_of(_timeline(5, 2, forward=forward, update=1.0)).seconds, 2.5)
