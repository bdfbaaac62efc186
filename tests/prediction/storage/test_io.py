"""Laws of reading: the lowest limit holds, words name it, and volumes say who pays for a batch."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc import Experiment, SpecError, loads
from lib_dlhpc.costs.input import input_time, loading_time
from lib_dlhpc.costs.storage_reads import LIMITS, limits, reader_time
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.prediction.storage.io import (
    bytes_in_a_node,
    needed_bandwidth,
    nodes_needed,
    reading,
    volumes,
)

RUN = Experiment(
    model="resnet50",
    dataset={"samples": 1_000_000, "bytes": "100 GB", "files": 1_000_000, "directories": 1000},
    machine={
        "name": "summit",
        "storage": {
            "fast": {
                "scope": "node",
                "bandwidth": "2 GB/s",
                "write_bandwidth": "1 GB/s",
                "capacity": "60 GB",
                "read_latency": "100 us",
            },
            "far": {
                "bandwidth": "20 GB/s",
                "metadata_rate": "30 kop/s",
                "operation_latency": "1 ms",
                "read_latency": "5 ms",
                "reader_bandwidth": "100 MB/s",
            },
        },
    },
    strategy={"nodes": 4},
    storage={"tier": "far", "local": "fast", "workers": 2, "decode": "2 ms"},
)
NODES = {"storage.access": "cooperative"}


def test_limits_by_hand():
    """24 devices with 48 readers; 100 kB in its own file: 3 ms of metadata, 5 of latency, 1 of bytes, 2 of decoding."""
    assert reader_time(RUN) == pytest.approx(
        {
            "metadata": 3e-3,
            "read latency": 5e-3,
            "transfer": 1e-3,
            "remote reads": 0.0,
            "decompression": 0.0,
            "decoding": 2e-3,
        }
    )
    rates = reading(RUN).rates
    assert rates["metadata servers"] == pytest.approx(10e3)
    assert rates["storage bandwidth"] == pytest.approx(200e3)
    link = RUN.machine.inter_node
    assert rates["network"] == pytest.approx(4 * 2 * link.bandwidth * link.efficiency / 1e5)
    assert rates["readers"] == pytest.approx(48 / 11e-3)
    assert rates["prefetch"] == np.inf
    assert reading(RUN).limit == "readers"
    assert reading(RUN).rate == pytest.approx(48 / 11e-3)


def test_batches_ahead_hold_that_many_samples_back():
    """A batch of 32 takes two readers 16 turns of 11 ms; two batches ahead, twice that many samples come."""
    for ahead in (1, 2, 4):
        rate = reading(RUN.set({"storage.prefetch": ahead})).rates["prefetch"]
        assert rate == pytest.approx(ahead * RUN.global_batch / (16 * 11e-3))
    free = RUN.set({"storage.prefetch": 3, "storage.workers": 0})
    assert reading(free).rates["prefetch"] == pytest.approx(3 * RUN.global_batch / 11e-3)


def test_packed_files_ask_for_nothing_but_one_read():
    packed = RUN.set({"storage.format": "packed", "storage.reads_per_file": 4.0})
    assert reading(packed).rates["metadata servers"] == np.inf
    assert reader_time(packed)["metadata"] == 0
    assert reader_time(packed)["read latency"] == pytest.approx(5e-3)
    assert reader_time(RUN.set({"storage.reads_per_file": 4.0}))["read latency"] == pytest.approx(
        20e-3
    )
    assert reading(packed).listing == 0 and reading(RUN).listing > 0


def test_compression_trades_bytes_for_time():
    """A third of the bytes: three times the bandwidth, a third of the transfer, and 100 kB at 50 MB/s to unpack."""
    smaller = RUN.set({"storage.compression": 3.0, "storage.decompress": 50e6})
    assert reading(smaller).rates["storage bandwidth"] == pytest.approx(600e3)
    assert reader_time(smaller)["transfer"] == pytest.approx(1e-3 / 3)
    assert reader_time(smaller)["decompression"] == pytest.approx(2e-3)


@pytest.mark.parametrize("copies", [1, 2, 4])
def test_a_cooperative_store_by_hand(copies):
    """Of four nodes' samples 1 - R/4 lie elsewhere: two latencies and the bytes over one card."""
    run = RUN.set({**NODES, "storage.replication": copies})
    link, elsewhere = run.machine.inter_node, 1 - copies / 4
    rate = link.bandwidth * link.efficiency
    found = reading(run)
    assert found.remote == elsewhere
    assert found.reader["remote reads"] == pytest.approx(
        elsewhere * (2 * link.latency + 1e5 / rate)
    )
    assert found.reader["metadata"] == 0 and found.reader["read latency"] == pytest.approx(1e-4)
    assert found.rates["metadata servers"] == np.inf
    assert found.rates["storage bandwidth"] == pytest.approx(4 * 2e9 / 1e5)
    through = 4 * 2 * rate / 1e5
    assert found.rates["network"] == pytest.approx(through / elsewhere if elsewhere else np.inf)
    assert bytes_in_a_node(run) == pytest.approx(copies * 100e9 / 4)
    assert nodes_needed(run) == np.ceil(copies * 100 / 60)


def test_copying_by_hand():
    """Staging: every node all of it; together: each its part. 3 M operations at 30 k/s hold both up."""
    staged = RUN.set({"storage.access": "stage", "storage.workers": 0})
    assert loading_time(staged) == pytest.approx(4 * 3e6 / 30e3)
    assert loading_time(staged.set({"storage.format": "packed"})) == pytest.approx(100e9 / 1e9)
    together = RUN.set({**NODES, "storage.workers": 0})
    assert loading_time(together) == pytest.approx(3e6 / 30e3)
    assert loading_time(together.set({"storage.format": "packed"})) == pytest.approx(25.0)
    slow = together.set({"storage.format": "packed", "machine.storage.far.bandwidth": 1e9})
    assert loading_time(slow) == pytest.approx(100.0)
    asked = RUN.set({**NODES})  # 48 readers, 9 ms of waiting for each of a million files
    assert loading_time(asked) == pytest.approx(1e6 * 9e-3 / 48)
    assert loading_time(RUN) == 0


@given(
    st.sampled_from(["stream", "stage", "cooperative"]),
    st.integers(0, 8),
    st.integers(0, 4),
    st.just(0.0) | st.floats(1.0, 2e11),
    st.floats(1, 5),
    st.integers(1, 4),
)
def test_the_time_of_a_batch_is_the_batch_over_the_lowest_rate(
    access, workers, prefetch, cache, compression, copies
):
    run = RUN.set(
        {
            "storage.access": access,
            "storage.workers": workers,
            "storage.prefetch": prefetch,
            "storage.cache": cache,
            "storage.compression": compression,
            "storage.replication": copies,
            "run.epochs": 3.0,
        }
    )
    found = reading(run)
    assert tuple(found.rates) == LIMITS
    assert found.rate == min(found.rates.values()) == found.rates[found.limit]
    assert input_time(run) == pytest.approx(run.global_batch / found.rate)
    assert found.fetch == pytest.approx(predict(run).input_time)
    assert found.why


def test_arrays_give_arrays_of_rates_and_names():
    nodes = np.array([1, 2, 4])
    found = reading(RUN.set({"strategy.nodes": nodes, **NODES, "storage.workers": 0}))
    assert found.rate.shape == (3,) and found.limit.shape == (3,)
    assert set(found.limit) <= set(LIMITS)
    decode = np.array([0.0, 1e-3, 1.0])
    limit = reading(RUN.set({"storage.decode": decode, "storage.workers": 20})).limit
    assert list(limit) == ["metadata servers", "metadata servers", "readers"]


def test_data_in_memory_has_no_limit():
    found = reading(RUN.set({"storage.tier": "", "storage.local": ""}))
    assert found.rate == np.inf and found.limit == "" and found.why == "" and found.fetch == 0


# --- volumes ---


def test_input_grows_with_the_batch_and_the_exchange_of_an_epoch_shrinks():
    batch = np.array([8, 16, 32, 64])
    moved = volumes(RUN.set({"strategy.batch": batch}))
    assert moved.stored == pytest.approx(24 * batch * 1e5)
    assert moved.operations == pytest.approx(24 * batch * 3)
    assert np.ptp(moved.gradients) == 0
    assert moved.epoch_gradients == pytest.approx(moved.gradients * np.ceil(1e6 / (24 * batch)))
    assert (np.diff(moved.epoch_gradients) < 0).all()
    assert moved.stored * moved.steps == pytest.approx(100e9, rel=0.01)


def test_what_each_device_sends_is_the_least_of_an_allreduce():
    moved = volumes(RUN)
    assert moved.gradients == pytest.approx(2 * 23 / 24 * 4 * RUN.model.parameters)
    assert volumes(RUN.set({"strategy.nodes": 1, "strategy.devices_per_node": 1})).gradients == 0


# --- what storage must give ---


def test_the_needed_bandwidth_is_that_of_mlperf_storage():
    """MLPerf Storage, ResNet-50 on an A100: 400 samples of 114,660 B in 0.435 s are 105.4 MB/s."""
    run = loads("""
    model = { name = "resnet50" }
    dataset = { samples = 1_281_024, files = 1024, bytes = 146_882_211_840 }
    machine = { name = "selene", storage = { nas = { bandwidth = "100 GB/s" } } }
    strategy = { nodes = 1, devices_per_node = 1, batch = 400 }
    storage = { tier = "nas" }
    """)
    needed = needed_bandwidth(run, 0.435)
    assert needed == pytest.approx(105.4e6, rel=1e-3)


def test_capacity_without_a_tier_is_asked_for():
    with pytest.raises(SpecError, match=r"storage\.local"):
        nodes_needed(RUN.set({"storage.local": ""}))
    assert nodes_needed(RUN.set({"storage.local": ""}), capacity=30e9) == 4


# --- words ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"machine.storage.far.metadata_rate": 3e3}, ["metadata servers of far", "packed"]),
        (
            {"storage.workers": 1, "storage.decode": 0.1},
            ["readers", "decoding", "readers per device"],
        ),
        ({"storage.prefetch": 1, "storage.decode": 0.5}, ["fetched ahead", "batches ahead"]),
        (
            {"machine.storage.far.bandwidth": 1e7},
            ["far cannot serve more reads", "more bytes", "compression"],
        ),
        ({"machine.inter_node.bandwidth": 1e7, "strategy.allreduce": "ring"}, []),
    ],
)
def test_a_starving_run_is_reported_so_with_the_limit_and_the_way_out(changes, words):
    run = RUN.set({"storage.workers": 64, **changes})
    (wall,) = [wall for wall in predict(run).walls if wall.startswith("Input")] or [""]
    assert all(word in wall for word in words)
    assert bool(wall) == (predict(run).input_stall > 0.05 * predict(run).step_time)


def test_a_fed_run_hears_nothing():
    assert predict(RUN.set({**NODES, "storage.workers": 8})).walls == []


def test_what_does_not_fit_into_the_nodes_is_reported_with_what_would():
    tight = {"storage.workers": 8, "machine.storage.fast.capacity": 20e9}
    (wall,) = predict(RUN.set({**NODES, **tight})).walls
    assert "its part of the data set, 25 GB" in wall and "5 nodes" in wall
    assert predict(RUN.set({**NODES, **tight, "storage.compression": 1.5})).walls == []
    (wall,) = [
        w for w in predict(RUN.set({"storage.access": "stage", **tight})).walls if "node" in w
    ]
    assert "all of the data set, 100 GB" in wall
    (wall,) = [
        wall
        for wall in predict(RUN.set({"storage.cache": 90e9, "machine.host_memory": 5e10})).walls
        if "cache" in wall
    ]
    assert "90 GB" in wall and "80% too much" in wall


def test_a_node_that_streams_from_its_own_tier_holds_all_of_the_data_set_there():
    own = RUN.set({"storage.tier": "fast", "storage.workers": 64})  # 60 GB in each of four nodes
    (wall,) = [wall for wall in predict(own).walls if wall.startswith("Storage")]
    assert "100 GB" in wall and "60 GB" in wall and "2 nodes" in wall
    roomy = {"machine.storage.fast.capacity": 1e11}
    assert predict(own.set(roomy)).walls == []
    # The way out that it names is one.
    told = {"storage.access": "cooperative", "storage.tier": "far", "strategy.nodes": 2}
    assert predict(own.set(told)).walls == []


@pytest.mark.parametrize("access", ["stream", "stage", "cooperative"])
def test_the_explanation_shows_every_limit_and_marks_the_one_that_holds(access):
    run = RUN.set({"storage.access": access, "storage.cache": 1e9, "run.epochs": 2.0})
    (found,) = [part for part in explain(predict(run)) if part.name == "input stall"]
    allowed = {name: mark for name, _, mark in found.inputs if name.startswith("allowed by ")}
    finite = {name for name, seconds in limits(run).items() if seconds}
    assert {name.removeprefix("allowed by ") for name in allowed} == finite
    assert [name for name, mark in allowed.items() if "LIMIT" in mark] == [
        f"allowed by {reading(run).limit}"
    ]


@pytest.mark.parametrize(
    ("key", "changes", "words"),
    [
        ("storage.workers", {"storage.workers": 3, "storage.decode": 0.05}, "readers per device"),
        (
            "storage.workers",
            {
                "storage.workers": 3,
                "storage.decode": 0.05,
                "strategy.update": "local",
                "strategy.local_steps": 16,
            },
            "readers per device",
        ),
        (
            "storage.workers",
            {"storage.workers": 3, "storage.decode": 0.05, "run.checkpoint_interval": 1.0},
            "readers per device",
        ),
        (
            "storage.prefetch",
            {"storage.workers": 0, "storage.prefetch": 2, "storage.decode": 2.0},
            "batches ahead",
        ),
    ],
)
def test_the_way_out_that_is_named_feeds_the_run_and_one_less_does_not(key, changes, words):
    run = RUN.set(changes)
    (wall,) = [wall for wall in predict(run).walls if wall.startswith("Input")]
    number = int(re.search(rf"([\d,]+) {words} are needed", wall)[1].replace(",", ""))
    assert predict(run.set({key: number})).input_stall == pytest.approx(0.0, abs=1e-9)
    assert predict(run.set({key: number - 1})).input_stall > 1e-6
