"""The explorer without a browser: whatever is chosen next can be chosen, and mistakes change nothing."""

import html

import pytest

from lib_dlhpc.explore.explorer.controls import FIELDS, change
from lib_dlhpc.explore.explorer.page import Explorer
from lib_dlhpc.explore.explorer.views import views
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.replays import replays
from lib_dlhpc.spec import catalog

RUNS = {run.name: run.experiment for run in replays()}


@pytest.mark.parametrize("machine", catalog.names("machines"))
@pytest.mark.parametrize("run", RUNS)
def test_every_machine_can_be_chosen_from_every_run(run, machine):
    there = change(RUNS[run], "machine", machine)
    assert there.machine.name == machine
    kept = machine == RUNS[run].machine.name and RUNS[run].calibration.rate > 0
    assert bool(there.calibration.rate) == kept
    assert bool(there.warnings) == (RUNS[run].calibration.rate > 0 and not kept)
    assert views(predict(there)).headline


@pytest.mark.parametrize("model", catalog.names("models"))
def test_every_model_can_be_chosen_on_every_run_and_on_one_laptop(model):
    for experiment in (*RUNS.values(), change(RUNS["goyal-2017"], "machine", "laptop")):
        there = change(experiment, "model", model)
        assert there.model.name == model
        assert views(predict(there)).headline


def test_a_model_that_does_not_fit_a_laptop_shows_its_wall():
    page = Explorer()
    page.controls["machine"].value = "laptop"
    page.controls["model"].value = "gpt3-175b"
    assert "times too much" in page.walls.value and "published" not in page.headline.value


def test_every_control_sets_a_field_and_shows_it():
    page = Explorer()
    assert set(page.controls) == {*FIELDS, "replay"}
    page.controls["nodes"].value = 4
    page.controls["optimizer"].value = "adam"
    assert page.experiment.strategy.nodes == 4 and page.experiment.strategy.optimizer == "adam"
    assert page.controls["replay"].value == ""
    page.controls["replay"].value = "ying-2018"
    assert page.controls["nodes"].value == RUNS["ying-2018"].strategy.nodes
    assert page.experiment == RUNS["ying-2018"]


@pytest.mark.parametrize("run", replays(), ids=lambda run: run.name)
def test_a_prediction_that_misses_its_publication_says_so_in_the_headline(run):
    page = Explorer()
    page.controls["replay"].value = run.name
    missed = run.miss(float(predict(run.experiment).time_to_train))
    for words in (" too short", " too long"):
        assert (words in page.headline.value) == (words in missed)
    assert html.escape(missed) in page.walls.value
    page.controls["nodes"].value = 4
    assert not missed or html.escape(missed) not in page.walls.value


def test_a_choice_that_drops_a_measured_rate_says_so():
    page = Explorer()
    page.controls["model"].value = "vgg16"
    assert "calibration.rate = 1089.4 is dropped" in page.walls.value
    page.controls["replay"].value = "goyal-2017"
    assert "is dropped" not in page.walls.value


def test_a_mistake_is_reported_and_changes_nothing():
    page = Explorer()
    before, shown = page.experiment, page.headline.value
    page.file.loaded = [1, "[model]"]
    assert "is missing" in page.file.problem
    assert page.experiment is before and page.headline.value == shown


def test_explanations_are_made_only_when_asked_for():
    page = Explorer()
    assert page.why.value == ""
    page.opened.value = True
    assert page.why.value.count("<details") == 9
