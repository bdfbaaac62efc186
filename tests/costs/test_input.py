"""Laws of input: bytes or operations, the slower; shared or in each node; paid before and between."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import loads
from lib_dlhpc.costs.input import input_time, start_time
from lib_dlhpc.prediction import predict

RUN = loads("""
[model]
name = "resnet50"
[dataset]
samples = 1_000_000
bytes = "100 GB"
files = 1_000_000
directories = 1000
[machine]
name = "summit"
[machine.storage.fast]
scope = "node"
bandwidth = "2 GB/s"
write_bandwidth = "1 GB/s"
metadata_rate = "10 kop/s"
[machine.storage.far]
scope = "shared"
bandwidth = "2 GB/s"
write_bandwidth = "1 GB/s"
metadata_rate = "10 kop/s"
[strategy]
nodes = 4
[storage]
tier = "fast"
""")


def test_input_by_hand():
    """A node fetches 192 samples: 19.2 MB at 2 GB/s, or 576 operations at 10 k/s."""
    assert input_time(RUN) == pytest.approx(192 * 3 / 10e3)
    bytes_only = RUN.set({"storage.operations_per_file": 0.0})
    assert input_time(bytes_only) == pytest.approx(192 * 1e5 / 2e9)


def test_a_shared_tier_serves_all_nodes():
    far = RUN.set({"storage.tier": "far"})
    assert input_time(far) == pytest.approx(4 * input_time(RUN))
    assert start_time(far) == pytest.approx(4 * start_time(RUN))


def test_records_of_many_samples_need_fewer_operations():
    records = RUN.set({"dataset.files": 1000})
    assert input_time(records) == pytest.approx(192 * 1e5 / 2e9)


def test_start_by_hand():
    """Six devices of a node list a thousand directories each at 10 k/s."""
    assert start_time(RUN) == pytest.approx(0.6)
    prediction = predict(RUN)
    expected = prediction.start_time + prediction.steps * prediction.step_time
    assert prediction.time_to_train == pytest.approx(expected)


def test_data_in_memory_costs_nothing():
    run = RUN.set({"storage.tier": ""})
    assert input_time(run) == start_time(run) == 0
    assert predict(run).input_stall == 0


@given(st.floats(1e6, 1e12), st.floats(1.0, 1e7))
def test_a_step_is_never_shorter_than_its_input_and_stalls_only_for_the_rest(bandwidth, rate):
    run = RUN.set(
        {"machine.storage.fast.bandwidth": bandwidth, "machine.storage.fast.metadata_rate": rate}
    )
    prediction = predict(run)
    assert prediction.step_time >= prediction.input_time * (1 - 1e-12)
    without = predict(RUN.set({"storage.tier": ""})).step_time
    expected = max(without, prediction.input_time)
    assert prediction.step_time == pytest.approx(expected, rel=1e-12)


def test_an_unlimited_tier_is_free():
    free = {f"machine.storage.fast.{key}": math.inf for key in ("bandwidth", "metadata_rate")}
    assert input_time(RUN.set(free)) == start_time(RUN.set(free)) == 0
