"""The law of all engines: a step in rounds takes what is predicted, in sum and term by term."""

from typing import Any

import pytest

from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.timeline import breakdown


def assert_same_terms(run: Experiment, predicted: Breakdown | None = None) -> tuple[Any, Any]:
    """Assert it within 1e-9 of the step, as both sum the same numbers in another order; return both."""
    predicted, played = predicted or predict(run), breakdown(simulate(run))
    assert played.step_time == pytest.approx(float(predicted.step_time), rel=1e-9)
    for name, seconds in predicted.terms.items():
        assert played.terms[name] == pytest.approx(float(seconds), abs=1e-9 * played.step_time), (
            name
        )
    return predicted, played
