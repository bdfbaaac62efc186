"""Messages on the page have the words of its controls."""

import pytest

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.explorer.controls import NAMED
from lib_dlhpc.explore.explorer.labels import FIELD, labeled
from lib_dlhpc.explore.explorer.presets import names, preset


def test_fields_of_controls_have_their_labels_and_others_their_names():
    text = "strategy.microbatches = 96: more than the 24 samples of strategy.batch; run.seed stays."
    assert labeled(text) == (
        "Microbatches 96: more than the 24 samples of Batch per replica; run.seed stays."
    )


@pytest.mark.parametrize("name", names())
def test_no_refusal_of_a_value_names_a_field_that_a_control_shows(name):
    refused = 0
    e = preset(name).experiment
    for field in NAMED:
        if field.startswith("strategy."):
            for value in (0, 3, 1e9, "no", True):
                try:
                    e.set({field: value})
                except SpecError as error:
                    refused += 1
                    named = {found["field"] for found in FIELD.finditer(labeled(str(error)))}
                    assert not named & {*NAMED}, error
    assert refused > 20
