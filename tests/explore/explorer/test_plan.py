"""How far a prediction can be trusted: its error where it was published, else what it was calibrated on."""

import pytest

from lib_dlhpc.explore.explorer.choice import Choice, experiment_of
from lib_dlhpc.explore.explorer.plan import Plan, trust
from lib_dlhpc.explore.explorer.presets import preset
from lib_dlhpc.prediction import compute_scale, predict
from lib_dlhpc.prediction.forget import forget, remembered
from lib_dlhpc.prediction.replays import replay, replays


@pytest.mark.parametrize("run", replays(), ids=lambda run: run.name)
def test_a_published_run_carries_its_error(run):
    prediction = predict(run.experiment)
    error = float(prediction.time_to_train) / run.published_time - 1
    words, _, level = trust(prediction, run)
    assert words == f"{error:+z.1%}"
    assert level == ("good" if abs(error) <= 0.1 else "fair" if abs(error) <= 0.25 else "poor")


def test_a_calibrated_run_says_so_however_it_was_calibrated():
    rated = replay("goyal-2017").experiment
    scaled = rated.set(
        {"calibration.rate": 0.0, "calibration.compute_scale": float(compute_scale(rated))}
    )
    for experiment in (rated, scaled):
        assert trust(predict(experiment), None)[0] == "calibrated"


def test_a_run_on_catalog_rates_is_not_checked():
    assert trust(predict(preset("laptop").experiment), None)[0] == "not checked"


def test_advice_leaves_no_more_in_memory_than_one_prediction_does():
    """A visitor's kernel would grow by 45 MB with each large network whose splits are tried."""
    choice = Choice(preset("narayanan-2021"))
    p = predict(experiment_of(choice))
    forget()
    predict(p.experiment)
    most = sum(cache.cache_info().currsize for cache in remembered())
    plan = Plan(lambda changes: None)
    plan.follow(p, (0, 0), lambda changes: experiment_of(choice.with_changes(changes)))
    assert plan.state["changes"] and not plan.state["stale"]
    held = sum(cache.cache_info().currsize for cache in remembered())
    assert 0 < held <= most
    assert predict(p.experiment).terms == p.terms
