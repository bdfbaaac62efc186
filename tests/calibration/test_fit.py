"""The fit finds the tier that synthetic points come from, noise and outliers included."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lib_dlhpc.calibration.expected import expected
from lib_dlhpc.calibration.fit import ends_of, fit_io, least_error
from lib_dlhpc.calibration.io import KINDS
from lib_dlhpc.calibration.points import Point
from lib_dlhpc.calibration.workspace import CalibrationError
from lib_dlhpc.spec.machine import StorageTier

DISK = {
    "bandwidth": 1.1e9,
    "metadata_rate": 90e3,
    "read_rate": 35e3,
    "operation_latency": 12e-6,
    "read_latency": 60e-6,
    "reader_bandwidth": 0.8e9,
}
MEMORY = {
    "bandwidth": 40e9,
    "metadata_rate": 900e3,
    "read_rate": 1.5e6,
    "operation_latency": 2e-6,
    "read_latency": 1.5e-6,
    "reader_bandwidth": 22e9,
}


def planted(numbers, noise=0.0, repeats=9, readers=(1, 2, 8), seed=0):
    """Points of a tier with these numbers, each repeat off by `noise`, and every ninth far off."""
    tier, dice = StorageTier(servers="one", scope="node", **numbers), np.random.default_rng(seed)
    points = []
    for (what, size), count in [(kind, count) for kind in KINDS for count in readers]:
        if what not in ("file", "random"):
            continue
        true = expected(tier, Point(what, "cold", count, size, (1.0,), (1,)))
        seconds = true * np.exp(noise * dice.standard_normal(repeats))
        seconds[0] *= 1 if noise == 0 else 10
        samples = (1000,) * repeats
        points.append(Point(what, "cold", count, size, tuple(1000 * seconds), samples))
    return [*points, Point("write", "cold", 1, 1 << 20, (0.1,) * 3, (100,) * 3)]


@pytest.mark.parametrize("numbers", [DISK, MEMORY], ids=["disk", "memory"])
def test_without_noise_all_that_was_planted_is_found(numbers):
    fit = fit_io(planted(numbers))
    for key, value in numbers.items():
        assert getattr(fit.tier, key) == pytest.approx(value, rel=1e-6), key
        assert fit.intervals[key] == pytest.approx((value, value), rel=1e-6), key
    assert fit.tier.write_bandwidth == pytest.approx(1000 * (1 << 20))
    assert fit.error == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("numbers", [DISK, MEMORY], ids=["disk", "memory"])
def test_noise_and_outliers_move_it_little(numbers, seed):
    fit = fit_io(planted(numbers, noise=0.05, seed=seed))
    for key, value in numbers.items():
        low, high = fit.intervals[key]
        assert low <= getattr(fit.tier, key) <= high or math.isclose(low, high), key
        assert getattr(fit.tier, key) == pytest.approx(value, rel=0.3), key
    clean = planted(numbers)[:-1]
    unseen = [Point(each.what, "cold", 4, 3 * each.size, (1.0,), (1,)) for each in clean]
    true = StorageTier(servers="one", scope="node", **numbers)
    for each in unseen:
        assert expected(fit.tier, each) == pytest.approx(expected(true, each), rel=0.15)


def test_readers_that_do_not_wait_for_each_other_leave_no_lower_limit():
    fit = fit_io(planted({**DISK, "bandwidth": 1e15, "metadata_rate": 1e12, "read_rate": 1e12}))
    one = StorageTier(**{**DISK, "scope": "node"})
    assert fit.tier.read_latency == pytest.approx(one.read_latency, rel=1e-6)
    assert math.isinf(fit.tier.metadata_rate)
    assert fit.bound


def test_an_undetermined_bandwidth_is_the_largest_measured_rate():
    points = [replace(point, seconds=(2.0,) * 9) for point in planted(DISK)[:-1]]
    fit = fit_io(points)
    largest = max(point.size for point in points) * 1000 / 2.0
    assert fit.bound
    assert fit.tier.bandwidth == pytest.approx(largest)
    assert fit.intervals["bandwidth"] == pytest.approx((largest, largest))
    assert not fit_io(planted(DISK)).bound


def test_a_far_point_pulls_no_harder_than_a_near_one():
    terms = np.array([[1.0, 0, 0]] * 6)  # least squares would say 0.78 of the second
    for far in (100.0, 0.5):
        assert least_error(terms, np.array([1, 1, 1, 1, 1, far]))[0] == pytest.approx(1, rel=0.05)


def test_nothing_is_negative():
    # Larger is quicker: no bandwidth explains that, and a negative one is no number.
    terms = np.array([[3.0, 1, 1e3], [3, 1, 1e6], [0, 1, 1e3], [0, 1, 1e6]])
    assert (least_error(terms, np.array([4.0, 2, 3, 1])) >= 0).all()


@pytest.mark.parametrize("what", ["file", "random"])
def test_too_few_sizes_report_it(what):
    some = [point for point in planted(DISK) if point.what != what]
    with pytest.raises(CalibrationError, match=f"'{what}': 0 sizes; a fit needs at least 2"):
        fit_io(some)
    with pytest.raises(CalibrationError, match="'file': 0 sizes"):
        fit_io([point for point in planted(DISK) if point.readers > 1])


def test_an_interval_contains_the_number_for_any_resampled_fits():
    tries = [1.0, 2.0, 3.0, 4.0]
    assert ends_of(2.5, tries) == (1.0, 4.0)
    assert ends_of(0.5, tries) == (0.5, 4.0)
    assert ends_of(9.0, tries) == (1.0, 9.0)
