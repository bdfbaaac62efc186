"""No dead controls: each field of [strategy], [training], [storage] moves prediction and simulation, or is run-only."""

import dataclasses

import pytest

from lib_dlhpc import Experiment
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.spec.run_only import TABLES

BASE = Experiment(
    model={
        "family": "gpt",
        "layers": 2,
        "hidden": 32,
        "heads": 4,
        "sequence": 16,
        "vocabulary": 64,
    },
    dataset={"name": "words", "files": 1000},
    machine={
        "name": "laptop",
        "nodes": 8,
        "devices_per_node": 4,
        "jitter": 0.1,
        "progress": True,
        "device": {"peak": {"fp16": "400 GFLOP/s"}},
        "intra_node": {"latency": "1 us", "bandwidth": "10 GB/s"},
        "inter_node": {"latency": "1 us", "bandwidth": "1 GB/s"},
        "host_link": {"latency": "1 us", "bandwidth": "10 MB/s"},
        "storage": {
            "near": {"scope": "node", "bandwidth": "1 MB/s"},
            "far": {"scope": "shared", "bandwidth": "100 kB/s"},
        },
    },
    strategy={"nodes": 2, "devices_per_node": 4, "batch": 8},
    run={"epochs": 10},
)
READ = {"storage.tier": "near", "machine.storage.near.bandwidth": 1e4}
FILES = {"storage.tier": "near", "machine.storage.near.metadata_rate": 10.0}
READERS = {"storage.tier": "near", "storage.workers": 2, "machine.storage.near.read_latency": 0.05}
SHARED = {"storage.tier": "far", "storage.access": "cooperative", "storage.local": "near"}
REMOTE = {
    "dataset.bytes": 1e9,
    "machine.storage.near.bandwidth": 1e9,
    "machine.inter_node.bandwidth": 1e6,
}
SERVED = {"strategy.update": "asynchronous", "machine.jitter": 0.5}
PIPED = {"strategy.pipeline": 2, "strategy.microbatches": 4}
IMAGES = {"model.name": "cnn-digits", "dataset.name": "digits"}
# A legal change of each field, after others that give it something to do.
CHANGES = {
    "strategy.nodes": (4, {}),
    "strategy.devices_per_node": (2, {}),
    "strategy.batch": (16, {}),
    "strategy.precision": ("fp16", {}),
    "strategy.allreduce": ("recursive_doubling", {}),
    "strategy.overlap": (False, {"strategy.bucket": 10e3}),
    "strategy.bucket": (10e3, {}),
    "strategy.wire": ("bf16", {}),
    "strategy.optimizer": ("adam", {}),
    "strategy.power_limit": (4.0, {}),
    "strategy.lora": (4, {}),
    "strategy.adapted": ("all", {"strategy.lora": 4}),
    "strategy.tensor": (2, {}),
    "strategy.pipeline": (2, {}),
    "strategy.spatial": (2, IMAGES),
    "strategy.context": (2, {}),
    "strategy.context_exchange": ("ring", {"strategy.context": 2}),
    "strategy.microbatches": (4, {"strategy.pipeline": 2}),
    "strategy.schedule": ("interleaved", PIPED),
    "strategy.stage_cut": ("work", {**PIPED, "model.layers": 4, "model.vocabulary": 2000}),
    "strategy.chunks": (2, {**PIPED, "strategy.schedule": "interleaved", "model.layers": 4}),
    "strategy.split": ("row", {"strategy.tensor": 2}),
    "strategy.sequence_parallel": (True, {"strategy.tensor": 2}),
    "strategy.tensor_pieces": (2, {"strategy.tensor": 2}),
    "strategy.tensor_overlap": ("async-tp", {"strategy.tensor": 2, "strategy.tensor_pieces": 2}),
    "strategy.zero": (3, {}),
    "strategy.shards": (2, {"strategy.zero": 3}),
    "strategy.gather": ("forward", {"strategy.zero": 3}),
    "strategy.zero_unit": ("layer", {"strategy.zero": 3}),
    "strategy.recompute": ("full", {}),
    "strategy.loss": ("separate", {"machine.device.unfused_loss": True}),
    "strategy.offload": ("all", {}),
    "strategy.experts": (2, {"model.experts": 4}),
    "strategy.fused_attention": ("on", {}),
    "strategy.expert_exchange": (
        "by-node",
        {
            "model.experts": 4,
            "model.chosen": 2,
            "strategy.experts": 2,
            "strategy.devices_per_node": 1,
        },
    ),
    "strategy.expert_wire": (
        "fp8",
        {
            "model.experts": 4,
            "strategy.experts": 2,
            "strategy.precision": "fp8",
            "machine.device.peak.bf16": 1e14,
            "machine.device.peak.fp8": 2e14,
        },
    ),
    "strategy.expert_imbalance": (2.0, {"model.experts": 4, "strategy.experts": 2}),
    "strategy.offload_to": ("near", {"strategy.offload": "all"}),
    "strategy.update": ("asynchronous", {}),
    "strategy.local_steps": (4, {"strategy.update": "local"}),
    "strategy.staleness": (1, SERVED),
    "strategy.servers": (2, SERVED),
    "training.low_rank": (1, {"strategy.optimizer": "sgd"}),
    "training.outer_rate": (0.7, {"strategy.update": "local"}),
    "training.outer_momentum": (0.9, {"strategy.update": "local"}),
    "training.sparsity": (0.9, {"strategy.optimizer": "sgd"}),
    "storage.tier": ("far", READ),
    "storage.operations_per_file": (30.0, FILES),
    "storage.access": ("cooperative", {"storage.tier": "far", "storage.local": "near"}),
    "storage.local": (
        "disk",
        {**SHARED, "machine.storage.disk": {"scope": "node", "bandwidth": 1e3}},
    ),
    "storage.format": ("packed", FILES),
    "storage.reads_per_file": (8.0, READERS),
    "storage.compression": (4.0, READ),
    "storage.decompress": (1e3, READERS),
    "storage.decode": (0.5, READERS),
    "storage.workers": (1, READERS),
    "storage.prefetch": (1, {**READ, "storage.decode": 1.0}),
    "storage.cache": (1e6, READ),
    "storage.replication": (2, {**SHARED, **REMOTE}),
}
DERIVED = {"strategy.data"}  # what the other splits leave over: every other value is refused

HELD = {"strategy.pipeline_runtime"}  # what a stage holds of messages, which takes no time


def declared():
    """Yield each field of the tables, and whether it is run-only."""
    for table in TABLES:
        for item in dataclasses.fields(getattr(BASE, table)):
            yield f"{table}.{item.name}", item.metadata.get("run_only") is not None


def terms(experiment, way):
    """Return the s of a step by cause."""
    if way == "predicted":
        return {name: float(seconds) for name, seconds in predict(experiment).terms.items()}
    return measure(experiment, simulate(experiment, way, steps=8)).terms


@pytest.fixture(scope="module")
def before():
    """A function that returns the terms of BASE with changes; many fields are tried on the same ones."""
    known = {}

    def found(about, way):
        key = repr(about), way
        if key not in known:
            known[key] = terms(BASE.set(about), way)
        return known[key]

    return found


def test_each_field_is_run_only_or_tried_below():
    assert {name for name, only in declared() if not only} == set(CHANGES) | DERIVED | HELD


@pytest.mark.parametrize("way", ["predicted", "rounds", "events"])
@pytest.mark.parametrize("key", CHANGES)
def test_it_moves_prediction_and_simulation(key, way, before):
    value, about = CHANGES[key]
    was, after = before(about, way), terms(BASE.set(about).set({key: value}), way)
    whole = max(sum(was.values()), sum(after.values()))
    assert max(abs(was[name] - after[name]) for name in was) > 1e-6 * whole


def off_default(key):
    """Return a legal value of a field that is not its default."""
    table, name = key.split(".")
    (item,) = (item for item in dataclasses.fields(getattr(BASE, table)) if item.name == name)
    if item.metadata["kind"] == "choice":
        return item.metadata["options"][-1]
    return item.default / 2 or 0.5 if item.metadata["kind"] == "number" else item.default + 1


@pytest.mark.parametrize("way", ["predicted", "rounds"])
@pytest.mark.parametrize("key", sorted(name for name, only in declared() if only))
def test_a_run_only_field_moves_neither(key, way, before):
    assert terms(BASE.set({key: off_default(key)}), way) == before({}, way)
