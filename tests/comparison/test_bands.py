"""Bands: 90% uncertainty of a prediction from the intervals of its machine's numbers."""

from dataclasses import replace

import numpy as np
import pytest

from lib_dlhpc.comparison import bands
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.measured.bands import calibration_of, carried, drawn_machine, seconds_of
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.spec.measured import Measured


def _on(experiment, machine, intervals):
    where = Measured("2026-01-31", "here", 2, 2, {}, intervals)
    return replace(experiment, machine=replace(machine, measured=where))


def test_a_machine_that_was_not_measured_has_none(digits):
    assert bands(digits) == {}


def test_the_prediction_lies_in_its_band_and_every_term_has_one(digits, calibrated):
    two = replace(digits, machine=calibrated).set({"strategy.devices_per_node": 2})
    found, predicted = bands(two), predict(two)
    assert set(found) == {"one step", *predicted.terms}
    low, high = found["one step"]
    assert low < predicted.step_time < high
    for name, seconds in predicted.terms.items():
        low, high = found[name]
        assert low <= float(seconds) * (1 + 1e-9) and high >= float(seconds) * (1 - 1e-9), name


@pytest.mark.parametrize("width", [1.0, 1.1, 2.0])
def test_one_number_that_all_time_hangs_on_gives_its_own_interval(digits, calibrated, width):
    quick = replace(calibrated, device=replace(calibrated.device, launch=1e-3, half_work=0.0))
    low, high = 1e-3 / width, 1e-3 * width
    lone = _on(digits, quick, {"device.launch": (low, high)})
    found = bands(lone)["one step"]
    edges = []
    for launch in (low, high):
        device = replace(quick.device, launch=launch)
        edges.append(float(predict(replace(lone, machine=replace(quick, device=device))).step_time))
    assert found == pytest.approx(edges, rel=1e-3)


def test_wider_intervals_give_wider_bands(digits, calibrated):
    narrow, wide = (
        _on(digits, calibrated, {"device.efficiency": (0.7 / by, 0.7 * by)}) for by in (1.1, 1.4)
    )
    lows, highs = zip(*(bands(each)["one step"] for each in (narrow, wide)), strict=True)
    assert lows[1] < lows[0] < highs[0] < highs[1]


def test_a_split_network_has_bands_too(digits, calibrated):
    split = {"strategy.devices_per_node": 2, "strategy.pipeline": 2, "strategy.microbatches": 2}
    piped = replace(digits, machine=calibrated).set(split)
    low, high = bands(piped)["one step"]
    assert low < predict(piped).step_time < high


def test_nine_tenths_of_what_is_drawn_lie_in_the_interval(calibrated):
    intervals = {"device.launch": (1e-6, 9e-6), "jitter": (0.01, 0.06)}
    known = replace(calibrated, device=replace(calibrated.device, launch=3e-6), jitter=0.02)
    drawn = drawn_machine(known, intervals, 1000)
    for values, (low, high) in zip(
        (drawn.device.launch, drawn.jitter), intervals.values(), strict=True
    ):
        assert np.mean((values >= low) & (values <= high)) == pytest.approx(0.9, abs=0.002)
        assert values.min() > 0


def test_a_number_that_was_set_elsewhere_is_taken_as_it_is(digits, calibrated):
    two = replace(digits, machine=calibrated).set({"strategy.devices_per_node": 2})
    assert bands(two)["waiting for the slowest"][1] > 0
    assert bands(two.set({"machine.jitter": 0.5}))["waiting for the slowest"][0] > 0
    still = drawn_machine(
        replace(calibrated, jitter=0.5), {"jitter": (0.0, 0.1), "storage.x.read_rate": (1, 2)}, 9
    )
    assert still.jitter == 0.5


def test_a_number_that_may_be_nothing_is_never_below(calibrated):
    drawn = drawn_machine(calibrated, {"jitter": (0.0, 0.1)}, 200)
    assert drawn.jitter.min() >= 0
    assert drawn.jitter.max() > 0.1


def test_the_same_machine_has_the_same_bands(digits, calibrated):
    here = replace(digits, machine=calibrated)
    assert bands(here) == bands(here)


def test_a_band_holds_the_value_though_all_intervals_lie_above_it(digits, calibrated):
    """Seldom is none of several such numbers drawn above its value, so nearly all draws take longer."""
    names = ("launch", "overhead", "slowdown", "half_work")
    own = {f"device.{name}": float(getattr(calibrated.device, name)) for name in names}
    above = {name: (value, 3 * value + 1e-5) for name, value in own.items()}
    below = {"device.efficiency": calibrated.device.efficiency, "device.memory_bandwidth": 1e9}
    slow = replace(calibrated, device=replace(calibrated.device, memory_bandwidth=1e9))
    longer = _on(digits, slow, above | {name: (value / 3, value) for name, value in below.items()})
    found, predicted = bands(longer)["one step"], float(predict(longer).step_time)
    assert found[0] == predicted < found[1]


def test_a_way_that_agrees_has_the_bands_of_the_prediction(digits, calibrated):
    known = bands(replace(digits, machine=calibrated))
    seconds = {name: float(value) for name, value in seconds_of(predict(digits)).items()}
    for name, band in carried(known, seconds, seconds).items():
        assert band == pytest.approx(known[name], rel=1e-12), name


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize("jitter", [0.0, 0.05])
def test_the_carried_band_holds_the_simulated_value(digits, calibrated, fidelity, jitter):
    """Whatever the jitter came to, for its own numbers lie in their intervals."""
    two = replace(digits, machine=replace(calibrated, jitter=jitter))
    two = two.set({"strategy.devices_per_node": 2})
    known = bands(two)
    predicted = {name: float(value) for name, value in seconds_of(predict(two)).items()}
    found = measure(two, simulate(two, fidelity, steps=3))
    own = {"one step": found.step_time, **found.terms}
    for name, (low, high) in carried(known, predicted, own).items():
        assert low * (1 - 1e-9) <= own[name] <= high * (1 + 1e-9), name


def test_what_is_not_predicted_may_be_off_by_as_many_seconds():
    assert carried({"a": (0.0, 2.0)}, {"a": 0.0}, {"a": 3.0}) == {"a": (3.0, 5.0)}


def test_only_a_measured_machine_reports_where_its_numbers_come_from(digits, calibrated):
    assert calibration_of(digits.machine) == ""
    assert calibration_of(calibrated).startswith("calibrated on 2")
