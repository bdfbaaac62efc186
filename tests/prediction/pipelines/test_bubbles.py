"""Closed forms of bubbles: those of 1F1B and ZB-H1 are the textbook's times, DualPipe's is that of its table."""

import numpy as np
import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.pipelines.bubbles import PassTimes, bubbles
from lib_dlhpc.prediction.pipelines.pipelined import RankTimes, pipeline_time


@pytest.mark.parametrize("stages", [2, 8, 16])
def test_idle_time_is_the_time_of_a_pipeline_less_its_work(stages):
    found, free = bubbles(stages, PassTimes(1.0, 2.0, 1.0)), np.zeros(stages - 1)
    ranks = RankTimes(np.full(stages, 1.0), np.full(stages, 2.0), free, free)
    for name, schedule in (("1F1B", "1f1b"), ("ZB-H1", "zb-h1")):
        time = pipeline_time(ranks, 2 * stages, schedule)
        assert found[name].idle == pytest.approx(time - 2 * stages * 3.0)


def test_dualpipe_has_about_the_bubble_of_zb_h1_and_twice_the_weights():
    found = bubbles(16, PassTimes(1.0, 2.0, 1.0))
    assert [each.idle for each in found.values()] == [45.0, 15.0, 14.0]
    assert [each.weights for each in found.values()] == [1, 1, 2]
    assert [each.activations for each in found.values()] == [16, 16, 17]


def test_what_overlaps_counts_for_half_of_the_stages_only():
    slow, fast = (
        bubbles(16, PassTimes(1.0, 2.0, 0.8, both))["DualPipe"].idle for both in (3.0, 2.5)
    )
    assert slow - fast == pytest.approx(7 * 0.5)
    assert bubbles(2, PassTimes(1.0, 2.0, 0.8))["DualPipe"].idle == 0.0


@pytest.mark.parametrize("stages", [0, 1, 7])
def test_an_odd_number_of_stages_has_no_two_ends(stages):
    with pytest.raises(SpecError, match=f"stages = {stages}: .* legal: even numbers from 2"):
        bubbles(stages, PassTimes(1.0, 2.0, 1.0))


@pytest.mark.parametrize("weights", [-0.1, 1.6])
def test_weight_gradients_leave_no_negative_idle_time(weights):
    with pytest.raises(SpecError, match=rf"weights = {weights} s: legal: 0 to 1.5 s"):
        bubbles(8, PassTimes(1.0, 2.0, weights))
    assert bubbles(8, PassTimes(1.0, 2.0, 1.5))["ZB-H1"].idle == 0.0
