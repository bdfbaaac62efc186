"""Presets begin with a run that can be, whose numbers agree with their explanations."""

import pytest

from lib_dlhpc.explore.explorer.headlines import headlines
from lib_dlhpc.explore.explorer.presets import CHIPS, names, preset
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.changes.advice import endless
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.prediction.what_if import what_if


@pytest.mark.parametrize("name", names())
def test_no_preset_begins_with_a_run_that_is_never_done(name):
    assert not endless(predict(preset(name).experiment))


@pytest.mark.parametrize("name", CHIPS)
def test_the_energy_has_one_unit_in_the_headline_and_in_its_explanation(name):
    p = predict(preset(name).experiment)
    (headline,) = [each for each in headlines(p) if each.name == "Energy"]
    (why,) = [each for each in explain(p) if each.name.startswith("energy")]
    assert headline.text == why.value


def test_a_run_without_checkpoints_is_asked_to_write_some() -> None:
    moved = what_if(preset("narayanan-2021").experiment, {"machine.name": "h100-pod"})
    saved = what_if(moved, {"storage.tier": "tectonic", "run.checkpoint_interval": 1800.0})
    remarks = [headlines(predict(run))[0].remark for run in (moved, saved)]
    assert ["set Checkpoint" in remark for remark in remarks] == [True, False]
