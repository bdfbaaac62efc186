"""Whole steps on real ranks from the page: what is asked is run and measured; failures leave it usable."""

import re

import numpy as np
import pytest
from experiment_page import Now, click, controls, result_text

from lib_dlhpc.explore.blocks.live_run import with_rate
from lib_dlhpc.explore.blocks.three_ways import terms_html, three_ways
from lib_dlhpc.explore.data_parallel.live import (
    BATCH,
    BUCKETS,
    RANKS,
    Setting,
    asked_words,
    experiment,
    one_step,
    result_html,
    train_here,
)
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import Timeline


def test_every_position_of_every_control_asks_for_a_run_of_its_own():
    asked = {
        asked_words(Setting(ranks, bucket, early))
        for ranks in RANKS[1:]
        for bucket in BUCKETS
        for early in (True, False)
    }
    assert len(asked) == (len(RANKS) - 1) * len(BUCKETS) * 2
    assert asked_words(Setting(1, 1e3)) == asked_words(Setting(1, 8e3))
    panel = train_here()
    controls(panel)["Ranks"].value = 4
    controls(panel)["Bucket"].value = 100e3
    controls(panel)["Exchange"].value = False
    assert asked_words(Setting(4, 100e3, False)) in result_text(panel)


@pytest.mark.parametrize("ranks", RANKS)
def test_the_batch_is_the_same_on_any_number_of_ranks(ranks):
    assert experiment(Setting(ranks)).global_batch == BATCH


def test_what_is_asked_is_trained_measured_and_laid_beside_the_prediction():
    pytest.importorskip("mpi4py")
    panel = train_here(thread=Now)
    accuracies = []
    for ranks in (2, 1):
        controls(panel)["Ranks"].value = ranks
        click(panel, "Train")
        assert ("Train on one rank as well" in result_text(panel)) == (ranks == 2)
        accuracies += re.findall(r"accuracy (\d+\.\d)%", result_text(panel))
    assert accuracies[0] == accuracies[1]
    text = result_text(panel)
    for words in ("predicted", "simulated", "measured", "calibrates", "during backward"):
        assert words in text
    figure = panel.children[1].children[3].children[0]
    assert figure.summary.startswith("One rank.")


def test_one_step_of_a_run_holds_all_its_rows_once():
    whole = simulate(experiment(Setting(4)), steps=3)
    parts = [one_step(whole, number) for number in range(3)]
    assert sum(len(part.start) for part in parts) == len(whole.start)
    assert all(part.start.min() == 0 for part in parts)
    np.testing.assert_array_equal(one_step(whole, 99).stop, parts[-1].stop)
    assert isinstance(parts[0], Timeline)


def test_the_rate_of_one_rank_is_what_the_prediction_starts_from():
    assert float(predict(with_rate(experiment(Setting(1)), 5e4)).throughput) == pytest.approx(5e4)
    setting = Setting(2)
    rates = {Setting(1): 5e4, setting: 8e4}
    error = float(predict(with_rate(experiment(setting), 5e4)).throughput) / 8e4 - 1
    assert f"{error:+z.0%}" in result_html(setting, {"forward": 1e-3}, rates)


def test_a_table_three_ways_leaves_out_what_nobody_has_and_sums_what_each_has():
    ways = three_ways(experiment(Setting(4)), {"forward": 1e-3, "exposed communication": 2e-3})
    assert sum(ways["predicted"].values()) == pytest.approx(
        sum(ways["simulated"].values()), rel=0.2
    )
    text = terms_html(ways)
    assert "3 ms" in text and "input stall" not in text and "waiting for the slowest" in text
