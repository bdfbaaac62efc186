"""Joules of a step each way: their terms sum to the whole; a run's are marked modeled where nothing counted them."""

import re
from dataclasses import replace

import pytest

from lib_dlhpc.comparison.comparison import beside, estimated
from lib_dlhpc.comparison.energy import REST, mean_power, of_causes
from lib_dlhpc.comparison.placed import placed
from lib_dlhpc.comparison.steady import steps_of
from lib_dlhpc.launch.energy import Counter, Power, run_power
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate

COUNTED = Power(20.0, "RAPL package-0", True)
MODELED = Power(14.0, "modeled: CPU time times busy power of a device, 7 W", False)


def compared(experiment, power):
    expected = estimated(placed(experiment))
    timeline = simulate(expected.placed.experiment, steps=12)
    return beside(expected, [replace(steps_of(timeline), power=power)])


def test_terms_and_the_rest_are_all_joules(digits):
    predicted = predict(digits)
    found = of_causes(predicted.energy)
    assert sum(found.values()) == pytest.approx(float(sum(predicted.energy.values())))
    assert set(found) == {*predicted.terms, REST} and found[REST] > 0


@pytest.mark.parametrize("power", [COUNTED, MODELED])
def test_the_run_has_its_power_in_each_term(digits, power):
    two = digits.set({"strategy.devices_per_node": 2, "machine.jitter": 0.0})
    found = compared(two, power)
    assert list(found.joules) == list(found.step)
    measured = found.joules["measured"]
    assert sum(measured.values()) == pytest.approx(power.watts * found.step["measured"])
    for way in ("rounds", "events"):  # equal seconds are equal joules
        assert found.joules[way]["forward"] == pytest.approx(found.joules["predicted"]["forward"])
    text = found.as_text()
    assert f"run, {'measured' if power.measured else 'modeled'}" in text and power.source in text
    assert f"  {REST}" in text
    assert found.as_dict()["joules"]["measured"] == measured
    assert found.as_dict()["power"]["measured"] == power.measured


def test_energy_is_in_watt_hours_from_one_on_as_other_commands_print_it(digits):
    parts = {"forward": 7200.0, "backward": 30.0}
    found = replace(compared(digits, MODELED), joules={"measured": parts})
    text = found.as_text()
    assert re.search(r"energy of a step, devices +2\.01 Wh\n", text)
    assert re.search(r"forward +2 Wh\n", text) and re.search(r"backward +30 J\n", text)


def test_offloaded_runs_update_within_backward(digits):
    found = compared(digits.set({"strategy.offload": "all"}), MODELED)
    assert not found.joules["predicted"]["update"] and not found.joules["rounds"]["update"]


def test_a_run_without_power_has_no_joules(digits):
    found = compared(digits, None)
    assert not found.joules["measured"] and "energy of a step" not in found.as_text()


def test_power_is_of_counters_or_else_modeled(digits):
    before, after = {"RAPL package-0": Counter(5.0)}, {"RAPL package-0": Counter(65.0)}
    assert run_power(digits, 2, 3.0, before, after) == COUNTED
    assert run_power(digits, 2, 3.0, {}, {}) == MODELED
    assert mean_power([COUNTED, COUNTED._replace(watts=30.0)]) == COUNTED._replace(watts=25.0)
    assert mean_power([COUNTED, None]) is None and not mean_power([COUNTED, MODELED]).measured
