"""A power limit: the law's limits, and its error on measured rows of workloads that it was not fitted to."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from power_law import between_batches, under_limit

from lib_dlhpc.costs.power_limit import SHAPE, Shape, clock, slowed
from lib_dlhpc.spec.machine import read_device

ROWS = Path(__file__).parents[1] / "data" / "power_limits.csv"
# Idle power: board readings of the two with a context open, an estimate. Most: the highest limit, their TDP.
IDLE = {"v100-pcie-32gb": 35.0, "rtx6000": 25.0}
MOST = {"v100-pcie-32gb": 250.0, "rtx6000": 260.0}
WORKLOADS = ("cifar100", "imagenet", "librispeech", "movielens-1m", "sentiment140", "squad")


def runs():
    """Rows by GPU, workload, optimizer, then batch, then limit: s an epoch, W."""
    found = {}
    with open(ROWS, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            run = (row["gpu"], row["dataset"], row["network"], row["optimizer"])
            batch, limit = int(row["batch_size"]), float(row["power_limit_W"])
            measured = float(row["seconds_per_epoch"]), float(row["average_power_W"])
            found.setdefault(run, {}).setdefault(batch, {})[limit] = measured
    return found


def table(given_of, limits=lambda gpu, limit: True):
    """Columns of all rows to predict; given_of(run, batches): s and W of each batch without a limit."""
    columns = []
    for run, batches in runs().items():
        gpu, most = run[0], MOST[run[0]]
        given = given_of({b: batches[b][most] for b in batches})
        best = min(seconds for seconds, _ in given.values())
        for batch, rows in batches.items():
            seconds, watts = given[batch]
            for limit, measured in rows.items():
                if limits(gpu, limit):
                    device = (IDLE[gpu], most)
                    columns.append(
                        (WORKLOADS.index(run[1]), limit, watts, seconds, best, *device, *measured)
                    )
    return np.array(columns).T


def below(gpu, limit):
    return limit < MOST[gpu]


def errors(columns, shape):
    """Relative errors of time and of power."""
    _, limit, watts, seconds, best, idle, most, time, power = columns
    found = under_limit(limit, watts, best / seconds, idle, most, shape)
    return np.abs(seconds * found.time / time - 1), np.abs(found.power / power - 1)


def fitted(columns):
    """Coordinate descent: each number is raised or lowered while that reduces the mean errors."""
    now, step = list(SHAPE), 0.16
    least = sum(map(np.mean, errors(columns, Shape(*now))))
    while step > 0.005:
        before = least
        for place in range(len(now)):
            for factor in (1 + step, 1 / (1 + step)):
                tried = [*now[:place], now[place] * factor, *now[place + 1 :]]
                error = sum(map(np.mean, errors(columns, Shape(*tried))))
                if error < least:
                    now, least = tried, error
        step = step if least < before else step / 2
    return Shape(*now)


@pytest.fixture(scope="module")
def left_out():
    """The numbers fitted to all rows but those of a workload, for each workload."""
    columns = table(dict, below)
    return [fitted(columns[:, columns[0] != number]) for number in range(len(WORKLOADS))]


def pooled(columns, shapes):
    """Mean errors over all rows, those of each workload with the numbers fitted to the others."""
    parts = [errors(columns[:, columns[0] == n], shape) for n, shape in enumerate(shapes)]
    return [np.mean(np.concatenate(each)) for each in zip(*parts, strict=True)]


def test_limits_of_a_workload_left_out(left_out):
    """From the rows without a limit: time 4.4%, power 3.7% at all lower limits, 766 rows of both GPUs."""
    columns = table(dict, below)
    time, power = pooled(columns, left_out)
    assert columns.shape[1] == 766
    assert time <= 0.06
    assert power <= 0.04


def from_two_batches(measured):
    ends = min(measured), max(measured)
    times, watts = zip(*(measured[b] for b in ends), strict=True)
    return {b: tuple(map(float, between_batches(float(b), ends, times, watts))) for b in measured}


def test_batches_and_limits_of_a_workload_left_out(left_out):
    """From the smallest and the largest batch without a limit: time 8.9%, power 4.3%, all batches and limits."""
    columns = table(from_two_batches)
    time, power = pooled(columns, left_out)
    assert columns.shape[1] == 886
    assert time <= 0.12
    assert power <= 0.08


def test_what_is_left_out_moves_the_fitted_numbers_little(left_out):
    """And the numbers of the library lie among them, or near."""
    each = np.array(left_out)
    assert np.all(np.abs(each / np.array(SHAPE) - 1) < 0.32)


@given(st.floats(36, 250), st.floats(0.05, 1), st.floats(1, 249))
def test_a_limit_slows_and_saves(power, efficiency, step):
    """No limit changes nothing; a lower limit never raises power nor shortens time."""
    free = under_limit(np.inf, power, efficiency, 35.0, 250.0)
    assert free == pytest.approx((1.0, power))
    limits = np.array([250.0, 250.0 - step])
    found = under_limit(limits, power, efficiency, 35.0, 250.0)
    assert found.time[0] <= found.time[1] * (1 + 1e-12)
    assert found.power[1] <= found.power[0] * (1 + 1e-12)
    assert found.power[1] >= 35.0 - 1e-9 or 250.0 - step < 35.0


def test_the_least_energy_has_a_limit_between():
    """Static power makes slow runs waste as fast ones do: energy has its minimum inside."""
    limits = np.linspace(60.0, 250.0, 96)
    found = under_limit(limits, 245.0, 1.0, 35.0, 250.0)
    best = int(np.argmin(found.time * found.power))
    assert 100.0 < limits[best] < 200.0


def test_the_clock():
    """A limit of the static part and one sixteenth of the rest is half the clock; there is a lowest one."""
    assert clock(100 + 200 / 16, 300.0, 100.0, Shape(static=0.0)) == pytest.approx(0.5)
    assert clock(np.array([np.inf, 300.0, 50.0]), 300.0, 100.0) == pytest.approx([1.0, 1.0, 0.25])
    assert clock(20.0, 10.0, 10.0) == 1.0  # a device that never draws more than idle


def test_between_two_batches():
    """The ends are exact; without overhead of a step, the time does not depend on the batch."""
    time, power = between_batches(np.array([8.0, 64.0]), (8.0, 64.0), (20.0, 10.0), (100.0, 200.0))
    assert (*time, *power) == pytest.approx((20.0, 10.0, 100.0, 200.0))
    time, power = between_batches(np.array([16.0]), (8.0, 64.0), (10.0, 10.0), (100.0, 200.0))
    assert (*time, *power) == pytest.approx((10.0, 150.0))


def test_all_rates_of_arithmetic_slow_down():
    """Fused attention and products in fp8 too, whose shares of the peak are their own."""
    device = read_device("h100-sxm-80gb")
    half = slowed(device, 0.5)
    for share in ("efficiency", "fp8_efficiency", "attention"):
        assert 0 < getattr(half, share) == getattr(device, share) / 2
    assert half.memory_bandwidth == device.memory_bandwidth
