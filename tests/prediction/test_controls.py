"""No dead controls: every field of an experiment moves something, and in the direction of physics."""

import dataclasses
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nouns import TABLES

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.accuracy import accuracy_lines
from lib_dlhpc.spec.machine import IN_NETWORK, RAILS, TOPOLOGIES
from lib_dlhpc.spec.run import CHECKPOINTS, WRITERS
from lib_dlhpc.spec.storage import ACCESSES, FORMATS
from lib_dlhpc.spec.strategy import (
    ALLREDUCES,
    OFFLOADS,
    OPTIMIZERS,
    RECOMPUTES,
    SCHEDULES,
    SPLITS,
    TRAINING_PRECISIONS,
    UPDATES,
)

BASE = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine={
        "name": "summit",
        "topology": "fat-tree",
        "nodes_per_switch": 2,
        "oversubscription": 2.0,
    },
    strategy={"nodes": 4, "allreduce": "rabenseifner", "overlap": False},
    storage={"tier": "nvme"},
    calibration={"rate": 1200.0, "devices": 6, "batch": 32},
    run={"epochs": 90, "checkpoint_interval": "10 min"},
)
# What only labels, and the seed of other engines.
LABELS = {"name", "seed", "measured", "currency"}
LABELS |= {"fp8_efficiency"}  # of serving: tests/serving/test_price.py
NOUNS = {
    *("machine.device", "machine.intra_node", "machine.inter_node", "machine.host_link"),
    "machine.storage",
}
UNCALIBRATED = {"calibration.rate": 0.0}
BYTES_BOUND = {"storage.operations_per_file": 0.0, "machine.storage.nvme.bandwidth": 1e6}
ASYNCHRONOUS = {**UNCALIBRATED, "strategy.update": "asynchronous", "machine.jitter": 0.1}
FILES_BOUND = {"machine.storage.nvme.metadata_rate": 1e3}
WORDS = {**UNCALIBRATED, "model.name": "gpt-1536x16", "model.layers": 2}
MOE = {**WORDS, "model.experts": 8}
FAILING = {"machine.node_mtbf": 1e6}
LEVELS = {
    **FAILING,
    "run.checkpoint": "multilevel",
    "storage.tier": "gpfs",
    "storage.local": "nvme",
    "machine.storage.gpfs.write_bandwidth": 1e7,
}
OFFLOADED = {**UNCALIBRATED, "strategy.offload": "all"}
# Two readers per device, and each waits for a file longer than a device computes with it.
READERS = {"storage.workers": 2, "machine.storage.nvme.read_latency": 0.05}
SHARED_OUT = {"storage.tier": "gpfs", "storage.access": "cooperative", "storage.local": "nvme"}
SLOW_DISK = {"scope": "node", "bandwidth": 1e6, "write_bandwidth": 1e6}
PACES = {"conv": {"rate": 1e12, "backward_rate": 1e12}}
INTERLEAVED = {
    "strategy.pipeline": 3,
    "strategy.microbatches": 6,
    "strategy.schedule": "interleaved",
}

NARROW = {
    "strategy.precision": "fp8",
    **{f"machine.device.peak.{name}": rate for name, rate in {"bf16": 1e14, "fp8": 2e14}.items()},
}
# A legal change of each field, after others that give it something to do.
CHANGES = {
    "strategy.nodes": (8, {}),
    "strategy.devices_per_node": (3, {}),
    "strategy.batch": (64, {}),
    "strategy.precision": ("fp16", {}),
    "strategy.allreduce": ("ring", {}),
    "strategy.overlap": (True, {}),
    "strategy.bucket": (1e6, {}),
    "strategy.wire": ("fp16", {}),
    "strategy.optimizer": ("adam", {}),
    "strategy.update": ("asynchronous", UNCALIBRATED),
    "strategy.local_steps": (4, {"strategy.update": "local"}),
    "strategy.staleness": (3, {**ASYNCHRONOUS, "strategy.servers": 4}),
    "strategy.servers": (2, ASYNCHRONOUS),
    "strategy.power_limit": (200.0, {}),
    "strategy.lora": (4, {"model.name": "bert-base"}),
    "strategy.adapted": ("all", {"model.name": "bert-base", "strategy.lora": 4}),
    "strategy.tensor": (2, {}),
    "strategy.pipeline": (2, {}),
    "strategy.spatial": (2, {}),
    "strategy.context": (2, WORDS),
    "strategy.context_exchange": ("ring", {**WORDS, "strategy.context": 2}),
    "strategy.microbatches": (2, {}),
    "strategy.schedule": ("gpipe", {"strategy.pipeline": 3, "strategy.microbatches": 8}),
    "strategy.stage_cut": (
        "work",
        {**WORDS, "model.layers": 6, "strategy.pipeline": 3, "strategy.batch": 1},
    ),
    "strategy.pipeline_runtime": ("pytorch", {"strategy.pipeline": 3, "strategy.microbatches": 8}),
    "strategy.chunks": (2, INTERLEAVED),
    "strategy.split": ("row", {"strategy.tensor": 2}),
    "strategy.sequence_parallel": (True, {"model.name": "bert-base", "strategy.tensor": 2}),
    "strategy.tensor_pieces": (4, {"model.name": "bert-base", "strategy.tensor": 2}),
    "strategy.tensor_overlap": (
        "async-tp",
        {"model.name": "bert-base", "strategy.tensor": 2, "strategy.tensor_pieces": 4},
    ),
    "strategy.zero": (1, {}),
    "strategy.shards": (3, {"strategy.zero": 3}),
    "strategy.gather": ("forward", {"strategy.zero": 3}),
    "strategy.zero_unit": ("layer", {"strategy.zero": 3}),
    "strategy.recompute": ("full", {}),
    "strategy.loss": ("separate", {"model.name": "bert-base"}),
    "strategy.offload": ("all", {}),
    "strategy.experts": (4, MOE),
    "strategy.fused_attention": ("on", {"model.name": "bert-base"}),
    "strategy.expert_exchange": (
        "by-node",
        {**MOE, "strategy.experts": 8, "strategy.devices_per_node": 2},
    ),
    "strategy.expert_wire": ("fp8", {**MOE, **NARROW, "strategy.experts": 4}),
    "strategy.expert_imbalance": (1.5, {**MOE, "strategy.experts": 4}),
    "strategy.offload_to": ("nvme", OFFLOADED),
    "machine.host_memory": (1e9, OFFLOADED),
    "machine.host_link.latency": (1e-2, OFFLOADED),
    "machine.host_link.bandwidth": (1e9, OFFLOADED),
    "machine.host_link.efficiency": (0.1, OFFLOADED),
    "storage.tier": ("gpfs", {}),
    "storage.operations_per_file": (30.0, FILES_BOUND),
    "storage.access": ("stage", {"storage.tier": "gpfs", "storage.local": "nvme"}),
    "storage.local": ("disk", {**SHARED_OUT, "machine.storage.disk": SLOW_DISK}),
    "storage.format": ("packed", FILES_BOUND),
    "storage.reads_per_file": (8.0, READERS),
    "storage.compression": (4.0, BYTES_BOUND),
    "storage.decompress": (1e5, READERS),
    "storage.decode": (0.5, READERS),
    "storage.workers": (1, READERS),
    "storage.prefetch": (1, {"storage.decode": 5.0}),
    "storage.cache": (70e9, FILES_BOUND),
    "storage.replication": (2, SHARED_OUT),
    "calibration.rate": (600.0, {}),
    "calibration.compute_scale": (2.0, UNCALIBRATED),
    "calibration.link_efficiency": (0.3, {}),
    "calibration.devices": (12, {}),
    "calibration.batch": (16, {}),
    "run.epochs": (45.0, {}),
    "run.target": (0.76, {}),
    "run.checkpoint_interval": (60.0, {}),
    "dataset.samples": (2_000_000, {}),
    "dataset.bytes": (280e9, BYTES_BOUND),
    "dataset.files": (1000, FILES_BOUND),
    "dataset.directories": (10, {}),
    "dataset.sample_shape": ([3, 32, 32], {}),
    "dataset.test_share": (0.2, {}),
    "machine.nodes": (3, {}),
    "machine.devices_per_node": (12, {}),
    "machine.domain": (2, {}),
    "machine.nics": (4, {}),
    "machine.topology": ("torus", {"strategy.nodes": 64}),
    "machine.nodes_per_switch": (64, {}),
    "machine.oversubscription": (4.0, {}),
    "machine.in_network": ("sharp", {"strategy.allreduce": "auto"}),
    "machine.jitter": (0.2, {}),
    "machine.progress": (False, {**UNCALIBRATED, "strategy.overlap": True}),
    "machine.node_power": (900.0, {}),
    "machine.pue": (1.5, {}),
    "machine.switch_power": (100.0, {}),
    "machine.carbon_intensity": (50.0, {}),
    "machine.electricity_price": (0.1, {}),
    "machine.device_price": (2.0, {}),
    "machine.storage.nvme.power": (10.0, {}),
    "machine.device.peak": ({"fp32": 5e12}, UNCALIBRATED),
    "machine.device.memory": (6e9, {"strategy.batch": 64}),
    "machine.device.memory_bandwidth": (3e11, UNCALIBRATED),
    "machine.device.idle_power": (80.0, {}),
    "machine.device.busy_power": (500.0, {}),
    "machine.device.reserved_memory": (3e9, {}),
    "machine.device.efficiency": (0.2, UNCALIBRATED),
    "machine.device.half_work": (5e10, UNCALIBRATED),
    "machine.device.launch": (1e-3, UNCALIBRATED),
    "machine.device.overhead": (1e-2, UNCALIBRATED),
    "machine.device.dispatch": (1e-2, UNCALIBRATED),
    "machine.device.list_copy": (
        1e-2,
        {**UNCALIBRATED, "strategy.zero": 3, "strategy.zero_unit": "layer"},
    ),
    "machine.device.exchange_call": (
        1e-2,
        {
            **UNCALIBRATED,
            "model.name": "mixtral-8x7b",
            "strategy.experts": 4,
            "strategy.expert_exchange": "by-node",
        },
    ),
    "machine.device.multiprocessors": (80, {**UNCALIBRATED, "model.name": "bert-base"}),
    "machine.device.streaming": (0.1, UNCALIBRATED),
    "machine.device.unfused_loss": (True, {**UNCALIBRATED, "model.name": "bert-base"}),
    "machine.device.attention": (
        0.2,
        {**UNCALIBRATED, "model.name": "gpt-1536x16", "machine.device.fused_attention": True},
    ),
    "machine.device.slowdown": (2.0, UNCALIBRATED),
    "machine.device.fused_attention": (True, {"model.name": "bert-base"}),
    "machine.device.layers": (PACES, UNCALIBRATED),
    "machine.intra_node.latency": (1e-3, {}),
    "machine.intra_node.bandwidth": (1e9, {"calibration.devices": 1, "calibration.rate": 200.0}),
    "machine.intra_node.efficiency": (0.1, {}),
    "machine.inter_node.latency": (1e-3, {}),
    "machine.inter_node.bandwidth": (1e9, {}),
    "machine.inter_node.efficiency": (0.1, {}),
    "machine.storage.nvme.bandwidth": (1e6, {"storage.operations_per_file": 0.0}),
    "machine.storage.nvme.scope": ("shared", FILES_BOUND),
    "machine.storage.nvme.write_bandwidth": (1e8, {}),
    "machine.storage.nvme.metadata_rate": (1e3, {}),
    "machine.storage.nvme.capacity": (1e9, {}),
    "machine.storage.nvme.operation_latency": (0.1, READERS),
    "machine.storage.nvme.read_latency": (0.5, READERS),
    "machine.storage.nvme.reader_bandwidth": (1e5, READERS),
    "machine.storage.nvme.read_rate": (10.0, {}),
    "machine.node_mtbf": (1e6, {}),
    "machine.restart_time": (600.0, FAILING),
    "machine.repair_time": (1e6, {**FAILING, "machine.nodes": 4}),
    "machine.local_survival": (0.9, LEVELS),
    "run.checkpoint": ("asynchronous", {}),
    "run.checkpoint_writers": ("all", {}),
    "run.changed": (0.1, {"run.checkpoint": "incremental"}),
    "machine.storage.nvme.servers": ("one", {**FILES_BOUND, "machine.storage.nvme.bandwidth": 1e8}),
}
# What the other splits leave over: every legal value says the same, every other one is refused.
DERIVED = {"strategy.data"}


def fields():
    for table, cls in TABLES.items():
        for item in dataclasses.fields(cls):
            key = f"{table}.{item.name}"
            if item.name not in LABELS and key not in NOUNS:
                yield key


def outcome(run):
    """All that a user sees of a prediction."""
    p = predict(run)
    numbers = (p.step_time, p.memory_total, p.time_to_train, p.energy_to_train, p.start_time)
    numbers = (*numbers, p.resilience.expected_time, p.carbon, p.price)
    return (*map(float, numbers), *p.walls, bool(p.fits), float(p.throughput), *accuracy_lines(p))


def test_the_table_knows_every_field():
    assert set(fields()) == set(CHANGES) | DERIVED


@pytest.mark.parametrize("key", CHANGES)
def test_every_field_moves_something(key):
    value, room = CHANGES[key]
    run = BASE.set(room)
    if key == "machine.nodes":  # only a limit: what it moves is what is legal
        with pytest.raises(SpecError, match=r"strategy\.nodes"):
            run.set({key: value})
    else:
        before, after = outcome(run), outcome(run.set({key: value}))
        assert before != after
        changed = max(
            abs(a - b) / max(abs(a), abs(b), 1e-300)
            for a, b in zip(before[:6], after[:6], strict=True)
        )
        assert changed > 1e-6 or before[6:] != after[6:]


def test_data_is_what_the_other_splits_leave():
    assert outcome(BASE.set({"strategy.data": 24})) == outcome(BASE)
    for wrong in (1, 12, 48):
        with pytest.raises(SpecError, match="24 devices"):
            BASE.set({"strategy.data": wrong})


OF_A_SPLIT = {
    "strategy.precision": {"model.name": "bert-base"},
    "strategy.schedule": {"strategy.pipeline": 4, "strategy.microbatches": 8},
    "strategy.split": {"strategy.tensor": 2},
    "strategy.recompute": {"model.name": "bert-base"},
    "storage.access": {"storage.tier": "gpfs", "storage.local": "nvme"},
    "storage.format": FILES_BOUND,
    "machine.in_network": {
        "strategy.allreduce": "auto",
        "machine.topology": "single-switch",
        "machine.intra_node.latency": 1e-4,
    },
    "run.checkpoint": {**LEVELS, "run.changed": 0.5},
}


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("strategy.allreduce", ALLREDUCES),
        ("strategy.optimizer", OPTIMIZERS),
        ("strategy.precision", TRAINING_PRECISIONS),
        ("strategy.update", UPDATES),
        ("strategy.schedule", SCHEDULES),
        ("strategy.split", SPLITS),
        ("strategy.zero", (0, 1, 2, 3)),
        ("strategy.recompute", RECOMPUTES),
        ("strategy.offload", OFFLOADS),
        ("machine.topology", tuple(t for t in TOPOLOGIES if t not in RAILS)),
        ("machine.topology", ("fat-tree", *RAILS)),
        ("machine.in_network", tuple(IN_NETWORK)),
        ("machine.storage.nvme.scope", ("shared", "node")),
        ("storage.access", ACCESSES),
        ("storage.format", FORMATS),
        ("run.checkpoint", CHECKPOINTS),
        ("run.checkpoint_writers", WRITERS),
    ],
)
def test_every_option_of_a_choice_differs_from_every_other(key, options):
    room = FILES_BOUND if key.endswith("scope") else {"storage.operations_per_file": 0.0}
    run = BASE.set({**UNCALIBRATED, **room, "strategy.nodes": 64})
    peaks = {"tf32": 6e13, "bf16": 1e14, "fp8": 2e14, "nvfp4": 4e14}
    run = run.set({f"machine.device.peak.{name}": rate for name, rate in peaks.items()})
    run = run.set(OF_A_SPLIT.get(key, {}))
    if "rails" in options:  # ranks of one index never change rails, as a ring does
        run = run.set({"strategy.allreduce": "ring"})
    if key == "strategy.update":  # every single step averaged is a synchronous step without overlap
        run = run.set({"strategy.overlap": True})
    outcomes = {option: outcome(run.set({key: option})) for option in options}
    assert len(set(outcomes.values())) == len(options), outcomes


# --- the direction ---

FASTER = [
    *("machine.inter_node.bandwidth", "machine.intra_node.bandwidth", "machine.nics"),
    *("machine.inter_node.efficiency", "machine.intra_node.efficiency"),
    *("machine.device.memory_bandwidth", "machine.device.efficiency", "machine.nodes_per_switch"),
    *("machine.storage.nvme.bandwidth", "machine.storage.nvme.metadata_rate"),
    *("machine.storage.nvme.write_bandwidth", "run.checkpoint_interval"),
]
SLOWER = [
    *("machine.inter_node.latency", "machine.intra_node.latency", "machine.device.launch"),
    *("machine.device.overhead", "machine.device.slowdown"),
    *("machine.device.half_work", "machine.jitter", "machine.oversubscription"),
    *("storage.operations_per_file", "strategy.batch", "dataset.bytes"),
]
RANGES = {
    "machine.nics": [1, 2, 3, 4, 8, 16],
    "machine.nodes_per_switch": [1, 2, 4, 8, 16, 4096],
    "strategy.batch": [1, 2, 7, 32, 100, 1000],
    "machine.jitter": [0.0, 0.01, 0.1, 0.2, 0.5, 1.0],
    "machine.oversubscription": [1.0, 1.5, 2.0, 4.0, 8.0, 64.0],
    "machine.inter_node.latency": [0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2],
    "machine.intra_node.latency": [0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2],
    "machine.device.launch": [0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2],
    "machine.device.overhead": [0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2],
    "machine.device.slowdown": [0.5, 0.8, 1.0, 1.2, 2.0, 10.0],
    "machine.device.half_work": [0.0, 1e3, 1e6, 1e8, 1e9, 1e12],
    "storage.operations_per_file": [0.0, 1.0, 3.0, 10.0, 100.0, 1000.0],
    "dataset.bytes": [1e6, 1e9, 1e11, 1e12, 1e14, 1e16],
    "run.checkpoint_interval": [1.0, 10.0, 60.0, 600.0, 3600.0, 86400.0],
}
SHARES = [0.01, 0.05, 0.1, 0.5, 0.9, 1.0]
RATES = [1e5, 1e7, 1e9, 1e10, 1e11, 1e13]


def range_of(key):
    return np.array(RANGES.get(key, SHARES if key.endswith("efficiency") else RATES))


@pytest.mark.parametrize(("key", "sign"), [*((k, -1) for k in FASTER), *((k, 1) for k in SLOWER)])
def test_more_of_it_never_goes_the_wrong_way(key, sign):
    for exchange in product(ALLREDUCES, (True, False)):
        ways = dict(zip(("strategy.allreduce", "strategy.overlap"), exchange, strict=True))
        run = BASE.set({**UNCALIBRATED, **ways, "strategy.nodes": 64})
        steps = np.broadcast_to(predict(run.set({key: range_of(key)})).step_time, (6,))
        assert (sign * np.diff(steps) >= -1e-12 * steps[1:]).all(), exchange


FRACTIONS = [0.0, 0.2, 0.5, 1.0, 2.0, 10.0]
COUNTS = [1, 2, 3, 4, 7, 64]
# Each field, its sign, six values.
OF_INPUT = {
    "storage.reads_per_file": (1, FRACTIONS),
    "storage.decode": (1, FRACTIONS),
    "machine.storage.nvme.operation_latency": (1, FRACTIONS),
    "machine.storage.nvme.read_latency": (1, FRACTIONS),
    "storage.compression": (-1, [0.5, 1.0, 2.0, 4.0, 8.0, 100.0]),
    "storage.decompress": (-1, RATES),
    "machine.storage.nvme.reader_bandwidth": (-1, RATES),
    "storage.workers": (-1, COUNTS),
    "storage.prefetch": (-1, COUNTS),
    "storage.cache": (-1, RATES),
    "storage.replication": (-1, COUNTS),
}


@pytest.mark.parametrize("readers", [{}, READERS, {**READERS, "storage.prefetch": 2}])
@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("key", OF_INPUT)
def test_more_of_what_feeds_a_run_never_goes_the_wrong_way(key, access, readers):
    away = {} if access == "stream" else {"storage.tier": "gpfs", "storage.local": "nvme"}
    run = BASE.set({"strategy.nodes": 64, **readers, "storage.access": access, **away})
    sign, values = OF_INPUT[key]
    prediction = predict(run.set({key: np.array(values)}))
    steps = np.broadcast_to(prediction.step_time, (6,))
    assert (sign * np.diff(steps) >= -1e-12 * steps[1:]).all()


AGREED = [key for key in FASTER if "intra_node" not in key], [*SLOWER, "strategy.staleness"]


@pytest.mark.parametrize("update", [up for up in UPDATES if up != "synchronous"])
@pytest.mark.parametrize("servers", [1, 8, 64])
@pytest.mark.parametrize(
    "key", [*AGREED[0], *AGREED[1], "strategy.servers", "strategy.local_steps"]
)
def test_so_it_is_with_other_updates(update, servers, key):
    legal = {"asynchronous": {"strategy.local_steps"}, "local": {"strategy.staleness"}}
    if key in legal[update] or (update == "local" and (servers > 1 or key == "strategy.servers")):
        return
    run = BASE.set({**UNCALIBRATED, "strategy.update": update, "strategy.servers": servers})
    run = run.set({"strategy.nodes": 64, "machine.jitter": 0.1})
    values = np.arange(1, 7) if key.startswith("strategy.") else range_of(key)
    steps = np.broadcast_to(predict(run.set({key: values})).step_time, (6,))
    sign = 1 if key in SLOWER else -1
    assert (sign * np.diff(steps) >= -1e-12 * steps[1:]).all()


@pytest.mark.parametrize("allreduce", ALLREDUCES)
def test_more_nodes_never_communicate_less(allreduce):
    nodes = 2 ** np.arange(12)
    for devices in (1, 4, 6):
        run = BASE.set(
            {
                **UNCALIBRATED,
                "strategy.allreduce": allreduce,
                "strategy.devices_per_node": devices,
                "machine.topology": "single-switch",
                "strategy.nodes": nodes,
            }
        )
        total = predict(run).communication.total
        assert (np.diff(total) >= -1e-12 * total[1:]).all() or allreduce == "torus_2d"
        assert total[-1] > total[0]


@given(
    st.sampled_from(["fp32", "fp16"]), st.integers(1, 512), st.integers(1, 512), st.integers(1, 100)
)
def test_throughput_grows_with_batch_and_the_run_ends_sooner(precision, a, b, nodes):
    small, big = sorted((a, b))
    run = BASE.set(
        {
            **UNCALIBRATED,
            "strategy.precision": precision,
            "strategy.nodes": nodes,
            "storage.tier": "nvme",
        }
    )
    one, more = (predict(run.set({"strategy.batch": batch})) for batch in (small, big))
    assert more.throughput >= one.throughput * (1 - 1e-12)
    assert more.memory_total >= one.memory_total


@pytest.mark.parametrize("way", CHECKPOINTS)
@pytest.mark.parametrize(
    ("key", "values", "sign"),
    [
        ("machine.node_mtbf", [1e4, 1e5, 1e6, 1e7, np.inf], -1),
        ("machine.restart_time", [0.0, 1.0, 60.0, 600.0, 1e4], 1),
        ("machine.repair_time", [0.0, 1e3, 1e5, 1e6, 1e7], 1),
        ("machine.local_survival", [0.0, 0.2, 0.5, 0.9, 1.0], -1),
        ("run.changed", [0.0, 0.01, 0.1, 0.5, 1.0], 1),
        ("machine.storage.gpfs.write_bandwidth", [1e7, 1e8, 1e9, 1e10, 1e12], -1),
    ],
)
def test_failures_and_dear_checkpoints_never_make_a_run_shorter(way, key, values, sign):
    run = BASE.set({**LEVELS, "run.checkpoint": way, key: np.array(values)})
    times = np.broadcast_to(predict(run).resilience.expected_time, (5,))
    assert (sign * np.diff(times) >= -1e-12 * times[1:]).all()
