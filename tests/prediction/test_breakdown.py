"""Laws of a prediction: its terms add up, it lies in its bounds, scalars stay scalars, arrays broadcast."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nouns import TABLES, reach

from lib_dlhpc import Experiment, SpecError, load
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.strategy import ALLREDUCES, OPTIMIZERS, UPDATES

BASE = Experiment(
    model="resnet50",
    dataset="imagenet",
    machine={
        "name": "summit",
        "topology": "fat-tree",
        "nodes_per_switch": 2,
        "oversubscription": 2.0,
    },
    strategy={"nodes": 4, "allreduce": "rabenseifner"},
    storage={"tier": "nvme"},
    calibration={"rate": 1200.0, "devices": 6, "batch": 32},
    run={"epochs": 90, "checkpoint_interval": "10 min"},
)
OUTPUTS = (
    *("compute_scale", "forward", "backward", "update", "straggler_wait", "exposed_communication"),
    *("input_time", "input_stall", "checkpoint", "step_time", "start_time", "compute"),
    *("throughput", "efficiency", "speedup", "memory_total", "fits", "steps", "time_to_train"),
    *("energy_to_train", "price", "device_hours", "staleness", "server_load"),
)


def values(prediction):
    """Every number that a prediction holds, by name."""
    found = {name: getattr(prediction, name) for name in OUTPUTS}
    for table in ("terms", "memory", "energy"):
        found |= {f"{table}.{key}": value for key, value in getattr(prediction, table).items()}
    found |= {f"communication.{key}": v for key, v in prediction.communication._asdict().items()}
    low, high = prediction.step_time_bounds
    return found | {"low": low, "high": high}


ON = {
    name: BASE.set({"strategy.nodes": 1, "storage.tier": "", "run.checkpoint_interval": 0.0}).set(
        {"machine.name": name, "calibration.rate": 0.0, "calibration.devices": 1}
    )
    for name in ("summit", "dgx1-p100", "tpu-v3-pod", "piz-daint", "laptop")
}


@st.composite
def experiments(draw):
    """A machine and changes to the experiment on it: short to print, built by the test."""
    machine = draw(st.sampled_from(list(ON)))
    m = ON[machine].machine
    tier = draw(st.sampled_from(["", *m.storage]))
    changes = {
        "strategy.nodes": draw(st.integers(1, m.nodes)),
        "strategy.devices_per_node": draw(st.integers(0, m.devices_per_node)),
        "strategy.batch": draw(st.integers(1, 1024)),
        "strategy.allreduce": draw(st.sampled_from(ALLREDUCES)),
        "strategy.overlap": draw(st.booleans()),
        "strategy.bucket": draw(st.floats(1e3, 1e10)),
        "strategy.precision": draw(st.sampled_from(["fp32", "fp16", "bf16"])),
        "strategy.optimizer": draw(st.sampled_from(OPTIMIZERS)),
        "model.name": draw(st.sampled_from(["resnet50", "vgg16", "bert-base", "mlp-digits"])),
        "dataset.name": draw(st.sampled_from(catalog.names("datasets"))),
        "strategy.update": draw(st.sampled_from(UPDATES)),
        "machine.jitter": draw(st.floats(0, 0.5)),
        "machine.topology": draw(
            st.sampled_from(
                ["single-switch", "fat-tree", "torus", "dragonfly", "rails", "rails-pxn"]
            )
        ),
        "machine.oversubscription": draw(st.floats(1, 8)),
        "machine.inter_node.bandwidth": draw(st.floats(1e6, 1e12)),
        "machine.inter_node.latency": draw(st.floats(0, 1e-2)),
        "storage.tier": tier,
        "run.checkpoint_interval": draw(st.floats(1, 1e5)) if tier else 0.0,
    }
    if changes["strategy.update"] == "local":
        changes["strategy.local_steps"] = draw(st.integers(1, 64))
    if changes["strategy.update"] == "asynchronous":
        if changes["strategy.optimizer"] == "muon":  # refused: servers have parts of matrices
            changes["strategy.optimizer"] = "adam"
        changes["strategy.servers"] = servers = draw(st.integers(1, 64))
        changes["strategy.staleness"] = draw(st.integers(0, 8))
        changes["machine.nodes"] = m.nodes + servers
        changes["machine.topology"] = draw(st.sampled_from(["single-switch", "fat-tree"]))
    if draw(st.booleans()):
        changes["calibration.rate"] = draw(st.floats(0.1, 1e4))
    return machine, changes


@settings(max_examples=200)
@given(experiments())
def test_terms_add_up_and_the_step_lies_in_its_bounds(drawn):
    machine, changes = drawn
    run = ON[machine].set(changes)
    prediction = predict(run)
    low, high = prediction.step_time_bounds
    step = prediction.step_time
    assert sum(prediction.terms.values()) == pytest.approx(step, rel=1e-12)
    assert all(seconds >= 0 for seconds in prediction.terms.values())
    assert low <= step * (1 + 1e-12) and step <= high * (1 + 1e-12)
    assert 0 < prediction.efficiency <= 1 + 1e-12
    assert prediction.speedup <= run.devices * (1 + 1e-12)
    assert prediction.exposed_communication <= prediction.communication.total + 1e-12 * step
    assert prediction.throughput * step == pytest.approx(run.global_batch)
    assert all(np.isfinite(value) for value in values(prediction).values())


@settings(max_examples=100)
@given(experiments())
def test_scalars_in_scalars_out(drawn):
    machine, changes = drawn
    for name, value in values(predict(ON[machine].set(changes))).items():
        assert not isinstance(value, np.ndarray), name


def test_the_last_step_may_be_short():
    run = BASE.set({"dataset.samples": 1001, "run.epochs": 1.0, "strategy.nodes": 1})
    run = run.set({"strategy.batch": 100, "strategy.devices_per_node": 1})
    assert predict(run).steps == 11
    assert predict(run.set({"run.epochs": 0.5})).steps == 6


def test_one_device_neither_talks_nor_waits():
    one = BASE.set({"strategy.nodes": 1, "strategy.devices_per_node": 1})
    for allreduce in ALLREDUCES:
        prediction = predict(one.set({"strategy.allreduce": allreduce}))
        assert prediction.communication.total == prediction.straggler_wait == 0
        assert prediction.terms["exposed communication"] == 0


# --- arrays ---

NUMBERS = [
    f"{table}.{item.name}"
    for table, cls in TABLES.items()
    for item in dataclasses.fields(cls)
    if item.metadata.get("kind") in ("number", "whole")
]
SPECIAL = {
    "strategy.nodes": [1, 2, 3],
    "strategy.devices_per_node": [6, 0, 3],
    "strategy.data": [0, 24, 24],
    "strategy.tensor": [1, 2, 3],
    "strategy.pipeline": [1, 2, 6],
    "strategy.spatial": [1, 2, 6],
    "strategy.context": [1, 1, 1],
    "strategy.microbatches": [1, 4, 8],
    "strategy.chunks": [1, 1, 1],
    "strategy.zero": [0, 2, 3],
    "strategy.shards": [0, 0, 0],
    "strategy.experts": [1, 1, 1],
    "strategy.expert_imbalance": [1.0, 1.0, 1.0],
    "strategy.local_steps": [1, 1, 1],
    "strategy.staleness": [0, 0, 0],
    "strategy.servers": [1, 1, 1],
    "strategy.power_limit": [0.0, 100.0, 250.0],
    "strategy.lora": [0, 0, 0],
    "machine.domain": [1, 2, 4],
    "machine.switch_power": [0.0, 10.0, 100.0],
    "machine.electricity_price": [0.0, 0.1, 0.2],
    "machine.device_price": [0.0, 1.0, 2.0],
    "machine.storage.nvme.power": [0.0, 10.0, 100.0],
    "calibration.rate": [0.0, 600.0, 1200.0],
    "calibration.devices": [6, 3, 12],
    "calibration.batch": [0, 16, 32],
    "run.checkpoint_interval": [0.0, 60.0, 3600.0],
    "machine.nodes": [4, 40, 400],
    "machine.devices_per_node": [6, 7, 8],
    "machine.jitter": [0.0, 0.1, 0.2],
    "machine.host_memory": [1e9, 1e10, 1e12],
    "machine.device.idle_power": [0.0, 10.0, 100.0],
    "machine.device.reserved_memory": [0.0, 1e9, 2e9],
    "machine.device.launch": [0.0, 1e-6, 1e-4],
    "dataset.test_share": [0.0, 0.2, 0.5],
    "run.seed": [0, 1, 2],
    "run.target": [0.0, 0.7, 0.76],
    "run.changed": [0.0, 0.1, 1.0],
    "machine.node_mtbf": [1e5, 1e6, np.inf],
    "machine.restart_time": [0.0, 60.0, 600.0],
    "machine.repair_time": [0.0, 3600.0, 1e6],
    "machine.local_survival": [0.0, 0.5, 1.0],
    "machine.storage.nvme.operation_latency": [0.0, 1e-4, 1e-2],
    "machine.storage.nvme.read_latency": [0.0, 1e-4, 1e-2],
    "machine.storage.nvme.reader_bandwidth": [1e6, 1e8, np.inf],
    "storage.reads_per_file": [0.0, 1.5, 20.0],
    "storage.compression": [0.9, 1.0, 3.0],
    "storage.decompress": [1e6, 1e8, np.inf],
    "storage.decode": [0.0, 1e-3, 1e-1],
    "storage.workers": [0, 1, 8],
    "storage.prefetch": [0, 1, 2],
    "storage.cache": [0.0, 1e9, 1e12],
    "storage.replication": [1, 2, 4],
}


def legal_values(key):
    """Three legal values of a field round the one it has."""
    if key in SPECIAL:
        return SPECIAL[key]
    here = reach(BASE, key)
    if key.endswith("efficiency"):
        return [0.25 * here, 0.5 * here, here]
    if isinstance(here, int):
        return [here, 2 * here + 1, 3 * here + 4]
    return [here, 1.5 * here, 3.0 * here]


def agree(whole, at, shape, one, note):
    every = values(whole)
    for name, value in values(one).items():
        found = np.broadcast_to(every[name], shape)[at]
        assert found == pytest.approx(value, rel=1e-12), (note, name)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("key", NUMBERS)
def test_an_array_in_any_field_equals_the_scalars_one_by_one(key, overlap):
    base = BASE.set({"strategy.overlap": overlap})
    given = legal_values(key)
    assert len(given) == 3
    whole = predict(base.set({key: np.array(given)}))
    for at, value in enumerate(given):
        agree(whole, at, (3,), predict(base.set({key: value})), (key, value))


UPDATED = {
    "local": {"strategy.update": "local", "strategy.local_steps": 4, "machine.jitter": 0.1},
    "asynchronous": {
        "strategy.update": "asynchronous",
        "strategy.servers": 2,
        "strategy.staleness": 3,
        "calibration.devices": 1,
        "calibration.rate": 200.0,
        "machine.jitter": 0.1,
        "machine.nodes": 3000,
    },
}
OTHERWISE = {  # what is legal and does something with these updates
    ("local", "strategy.local_steps"): [1, 2, 16],
    ("asynchronous", "strategy.staleness"): [0, 1, 8],
    ("asynchronous", "strategy.servers"): [1, 2, 16],
    ("asynchronous", "calibration.devices"): [1, 1, 1],
    ("asynchronous", "machine.nodes"): [1000, 2000, 3000],
    ("asynchronous", "machine.domain"): [1, 1, 1],
} | {
    (update, f"strategy.{name}"): [none] * 3  # only synchronous devices can share out a network
    for update in UPDATED
    for name, none in [
        *(("tensor", 1), ("pipeline", 1), ("spatial", 1), ("microbatches", 1), ("zero", 0)),
        *(("experts", 1), ("context", 1)),
    ]
}


@pytest.mark.parametrize("update", UPDATED)
@pytest.mark.parametrize("key", NUMBERS)
def test_so_it_is_with_other_updates(key, update):
    base = BASE.set(UPDATED[update])
    given = OTHERWISE.get((update, key), legal_values(key))
    whole = predict(base.set({key: np.array(given)}))
    for at, value in enumerate(given):
        agree(whole, at, (3,), predict(base.set({key: value})), (key, value))


PAIRS = [
    ("strategy.batch", "strategy.nodes"),
    ("strategy.batch", "strategy.bucket"),
    ("strategy.bucket", "strategy.nodes"),
    ("strategy.batch", "machine.device.memory_bandwidth"),
    ("strategy.nodes", "machine.inter_node.bandwidth"),
    ("strategy.batch", "calibration.rate"),
    ("calibration.batch", "machine.jitter"),
    ("machine.storage.nvme.bandwidth", "dataset.bytes"),
    ("machine.oversubscription", "machine.nodes_per_switch"),
]


@pytest.mark.parametrize("number", range(len(PAIRS)))
def test_two_arrays_make_a_grid(number):
    """Each pair with two exchanges, so that all pairs together have every exchange twice."""
    one, other = PAIRS[number]
    rows, columns = legal_values(one), legal_values(other)
    exchanges = list(ALLREDUCES)
    for allreduce in {exchanges[number % len(exchanges)], exchanges[-1 - number % len(exchanges)]}:
        base = BASE.set({"strategy.allreduce": allreduce})
        grid = {one: np.array(rows)[:, None], other: np.array(columns)}
        whole = predict(base.set(grid))
        for at in np.ndindex(3, 3):
            single = predict(base.set({one: rows[at[0]], other: columns[at[1]]}))
            agree(whole, at, (3, 3), single, (allreduce, rows[at[0]], columns[at[1]]))


@pytest.mark.parametrize(
    "key", ["machine.device.memory_bandwidth", "strategy.bucket", "run.epochs"]
)
def test_many_batches_in_any_order_beside_another_array(key):
    """Long arrays of batches are priced once for each; what stands beside them must not be mixed up."""
    order = np.random.default_rng(3).permutation(np.arange(1, 101))
    other = reach(BASE, key) * np.linspace(0.5, 2.0, 100)
    whole = predict(BASE.set({"strategy.batch": order, key: other}))
    for at in (0, 1, 50, 99):
        one = predict(BASE.set({"strategy.batch": int(order[at]), key: float(other[at])}))
        agree(whole, at, (100,), one, at)


def test_an_illegal_entry_anywhere_is_refused():
    with pytest.raises(SpecError, match=r"calibration\.devices"):
        predict(BASE.set({"calibration.devices": np.array([6, 7])}))
    with pytest.raises(SpecError, match=r"calibration\.rate"):
        predict(BASE.set({"calibration.rate": np.array([1200.0, 1e9])}))


def test_every_model_of_the_catalog_is_predicted():
    for name in catalog.names("models"):
        run = BASE.set({"model.name": name, "calibration.rate": 0.0})
        prediction = predict(run)
        assert 0 < prediction.step_time < 1e6 and run.model == read_model(name)


def test_utilization_is_the_measured_rate_over_the_peak():
    """On one device that never waits it follows from [calibration] alone."""
    alone = BASE.set(
        {
            "strategy.nodes": 1,
            "strategy.devices_per_node": 1,
            "storage.tier": "",
            "run.checkpoint_interval": 0.0,
        }
    )
    found = predict(
        alone.set({"calibration.rate": 100.0, "calibration.devices": 1, "machine.jitter": 0.0})
    )
    rate = 100.0 * found.experiment.model.train_flop
    assert found.model_rate == pytest.approx(rate, rel=0.01)  # the update takes part of a step
    assert found.utilization == found.model_rate / found.experiment.machine.device.peak["fp32"]
    assert found.tokens == 0


def test_recomputed_activations_do_not_count_as_utilization():
    run = load("llama3-405b")
    never, always = (predict(run.set({"strategy.recompute": each})) for each in ("none", "full"))
    ratio = always.step_time / never.step_time
    assert ratio > 1.1 and always.utilization == pytest.approx(never.utilization / ratio)
    assert never.tokens == 8192 * never.throughput


def test_utilization_broadcasts():
    nodes = np.array([1, 2, 4])
    each = predict(BASE.set({"strategy.nodes": nodes})).utilization
    assert each.tolist() == [
        predict(BASE.set({"strategy.nodes": int(n)})).utilization for n in nodes
    ]
