"""The predicted step that `dlhpc run` prints, and its machine."""

from datetime import date

import pytest

from lib_dlhpc.comparison.here import step_here
from lib_dlhpc.comparison.placed import placed, why_not
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.limits import rank_limits
from lib_dlhpc.spec.measured_machine import STAND_IN, default_path
from lib_dlhpc.spec.units import format_quantity

RESULT = {"ranks": 2, "terms": {"forward": 1e-3}, "memory": []}


@pytest.mark.parametrize("ranks", [1, 2])
def test_it_is_of_this_machine_s_calibration_where_there_is_one(digits, calibrated, ranks):
    text = step_here(digits, ranks, calibrated)
    step = float(predict(placed(digits, ranks, calibrated).experiment).step_time)
    today = date.today().isoformat()
    assert (
        text
        == f"predicted {format_quantity(step, 's')} by your calibration of this machine ({today})"
    )


def test_else_of_the_stand_in_and_how_to_calibrate_is_reported(digits):
    text = step_here(digits, 1)
    assert "for 'laptop', the catalog's stand-in" in text and "`dlhpc calibrate`" in text


def test_a_broken_calibration_is_named_and_spoils_no_run(digits):
    default_path().parent.mkdir(parents=True)
    default_path().write_text("[machine]\nname = 'laptop'\n")
    assert str(default_path()) in step_here(digits, 1)


def test_an_allreduce_in_switches_is_predicted_where_this_machine_says_that_it_has_them(digits):
    """A run sends its messages to a rank; the prediction here says what is missing, or has what is stated."""
    adds = {"machine.in_network": "both", "strategy.allreduce": "nvls"}
    other, here = (digits.set({"machine.name": name, **adds}) for name in ("summit", STAND_IN))
    assert why_not(here) == "" and step_here(here, 2).startswith("predicted")
    missing = "machine.in_network = nvls or both); laptop has none. Legal here: auto, ring,"
    assert step_here(other, 2).startswith("no prediction:")
    assert missing in step_here(other, 2) and missing in why_not(other)


def test_a_stall_is_part_of_it(digits, calibrated):
    slow = {"machine.storage.slow": {"scope": "node", "bandwidth": 1e4}, "storage.tier": "slow"}
    here = placed(digits.set(slow), 1, calibrated).experiment
    text = step_here(digits.set(slow), 1, calibrated)
    assert f"predicted {format_quantity(float(predict(here).step_time), 's')} by" in text
    assert predict(here).input_stall > 0


def test_it_stands_beside_what_was_measured_with_what_it_does_not_know(digits):
    lines = rank_limits.result_lines(
        digits.set({"training.shift": 2}), 1e6, RESULT, 2, "predicted 7 ms"
    )
    assert "  step: 1 ms; predicted 7 ms" in lines
    assert any("do not model training.shift = 2" in line for line in lines)
