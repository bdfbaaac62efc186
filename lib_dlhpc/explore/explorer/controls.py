"""The explorer's controls, as a table: group, label, field, what may be chosen, and where it does not apply.

A control shows a value of the experiment, so a loaded file is shown by the same controls. panel.py puts them on the
page, moves.py makes one move.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from lib_dlhpc.costs.compute import peak_rate
from lib_dlhpc.explore.explorer.choice import FACTORS
from lib_dlhpc.explore.explorer.measured import chosen, titles
from lib_dlhpc.schedules import COLLECTIVES
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import (
    ALLREDUCES,
    AUTO,
    OFFLOADS,
    OPTIMIZERS,
    RECOMPUTES,
    SCHEDULES,
    TRAINING_PRECISIONS,
)
from lib_dlhpc.spec.units import format_quantity as show

Options = list[tuple[str, Any]]  # label, value
GROUPS = ("Model", "Machine", "Split", "Batch and optimizer", "Input", "Failures")
SEQUENCE = "model.sequence"
EPOCHS = (0.1, 1.0, 2.0, 5.0, 10.0, 16.0, 30.0, 50.0, 64.0, 90.0, 100.0, 150.0, 200.0, 300.0)
BUCKETS = (1e3, 8e3, 1e5, 1e6, 2e6, 5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 1e9, 1e12)
YEAR, HOUR = 31557600.0, 3600.0
MTBF = (
    *(d * 86400.0 for d in (10, 30, 90)),
    *(y * YEAR for y in (0.5, 1, 2, 5, 10, 20, 50)),
    np.inf,
)
INTERVALS = (60.0, 300.0, 600.0, 1800.0, *(h * HOUR for h in (1, 2, 4, 8, 24)))
MOST_DEGREES, LARGEST_DEGREE = 7, 64


@dataclass(frozen=True)
class Control:
    """One control. kind: "steps" (a slider), "parts" (a few beside each other), "list", or "tick"."""

    field: str
    group: str
    label: str
    kind: str
    help: str
    options: Callable[[Experiment], Options]
    off: Callable[[Experiment], str] = lambda _: ""  # why it does not apply; "" where it does
    simple: bool = False  # shown to beginners


# The data set that goes with a family of models when the model is changed; ImageNet for all others.
DATASETS = {
    "bert": "wikipedia-books",
    "gpt": "webtext",
    "lstm_language_model": "webtext",
    "cosmoflow": "cosmoflow",
    "cosmoflow_large": "cosmoflow",
    "frnn": "reactor-status",
    "srgan_generator": "neural-image",
    "srgan_discriminator": "neural-image",
    "lenet5": "mnist-5k",
    "sequential": "digits",
    "mlp": "digits",
}


def node_counts(most: int, now: int) -> np.ndarray:
    """Return powers of two up to `most` nodes, `most` and `now` among them, sorted."""
    powers = 2 ** np.arange(int(np.log2(most)) + 1)
    return np.unique(np.append(powers, [most, now]))


def _entries(kind: str, now: Callable[[Experiment], str]) -> Callable[[Experiment], Options]:
    def options(e: Experiment) -> Options:
        known = _titles(kind)
        return known if now(e) in catalog.names(kind) else [("from your file", now(e)), *known]

    return options


@cache
def _titles(kind: str) -> Options:
    return [(catalog.read(kind, name)["title"], name) for name in catalog.names(kind)]


def _machines(e: Experiment) -> Options:
    known = _entries("machines", lambda e: e.machine.name)(e)
    return [*titles(e.machine), *(known if e.machine.measured is None else _titles("machines"))]


def _nodes(e: Experiment) -> Options:
    most, now = int(e.machine.nodes), int(e.strategy.nodes)
    whole = int(e.strategy.replica)
    counts = node_counts(most, now)
    fits = [int(n) for n in counts if n == now or n * int(e.devices_per_node) % whole == 0]
    return [(f"{n:,}", n) for n in fits]


def _per_node(e: Experiment) -> Options:
    most, now = int(e.machine.devices_per_node), int(e.devices_per_node)
    whole = int(e.strategy.replica)
    fits = [
        int(n) for n in node_counts(most, now) if n == now or n * int(e.strategy.nodes) % whole == 0
    ]
    return [(f"{n}", n) for n in fits]


def _powers(most: int, key: str) -> Callable[[Experiment], Options]:
    def options(e: Experiment) -> Options:
        now = int(getattr(e.strategy, key))
        return [(f"{n:,}", int(n)) for n in np.unique(np.append(2 ** np.arange(most + 1), now))]

    return options


def _degrees(key: str) -> Callable[[Experiment], Options]:
    """Degrees of one way to split that divide the devices which the other ways leave."""

    def options(e: Experiment) -> Options:
        now = int(getattr(e.strategy, key))
        left = int(e.devices) * now // int(e.strategy.replica)
        most = min(left, LARGEST_DEGREE, len(e.model.layers))
        some = [n for n in range(1, most + 1) if left % n == 0]
        if len(some) > MOST_DEGREES:
            some = [n for n in some if n & (n - 1) == 0]
        return [(f"{n}", n) for n in sorted({*some, now})]

    return options


def _experts(e: Experiment) -> Options:
    now = int(e.strategy.experts)
    return [
        (f"{n}", n) for n in sorted({*(2**k for k in range(9) if replicas(e) % 2**k == 0), now})
    ]


def _named(names: Any) -> Callable[[Experiment], Options]:
    return lambda _: [(name, name) for name in names]


def _sequences(e: Experiment) -> Options:
    now = int(e.model.options.get("sequence", 0))
    return [(f"{n:,}", int(n)) for n in np.unique(np.append(2 ** np.arange(7, 18), now)) if n]


def _precisions(e: Experiment) -> Options:
    return [(p, p) for p in TRAINING_PRECISIONS if not np.isnan(peak_rate(e.machine.device, p))]


def _allreduces(_: Experiment) -> Options:
    known = COLLECTIVES["allreduce"]
    return [("cheapest for each size", AUTO), *((known[name].label, name) for name in ALLREDUCES)]


def _sizes(e: Experiment) -> Options:
    sizes = sorted({*BUCKETS, float(e.strategy.bucket)})
    return [(show(b, "B") if b < 1e12 else "all at once", b) for b in sizes]


def _epochs(e: Experiment) -> Options:
    return [(f"{n:,g}", n) for n in sorted({*EPOCHS, float(e.run.epochs)})]


def _tiers(e: Experiment) -> Options:
    return [("in memory", ""), *((name, name) for name in e.machine.storage)]


def _mtbf(e: Experiment) -> Options:
    return [(_age(s), s) for s in sorted({*MTBF, float(e.machine.node_mtbf)})]


def _age(seconds: float) -> str:
    if np.isinf(seconds):
        return "never"
    return f"{seconds / YEAR:g} years" if seconds >= YEAR / 2 else f"{seconds / 86400:.3g} days"


def _intervals(e: Experiment) -> Options:
    some = sorted({*INTERVALS, float(e.run.checkpoint_interval)} - {0.0})
    return [("none", 0.0), *((show(s, "s"), s) for s in some)]


def _factors(_: Experiment) -> Options:
    return [(f"× {f:g}" if f >= 1 else f"× 1/{1 / f:g}", f) for f in FACTORS]


def _nics(e: Experiment) -> Options:
    return [(f"{n}", int(n)) for n in np.unique(np.append([1, 2, 4, 8, 16], int(e.machine.nics)))]


def _ticks(_: Experiment) -> Options:
    return [("off", False), ("on", True)]


def _zeros(_: Experiment) -> Options:
    return [(f"{n}", n) for n in range(4)]


def _without(condition: Callable[[Experiment], Any], reason: str) -> Callable[[Experiment], str]:
    return lambda e: "" if condition(e) else reason


def replicas(e: Experiment) -> int:
    """Return how many replicas of the network there are."""
    return int(e.devices) // int(e.strategy.replica)


def _has(kind: str) -> Callable[[Experiment], bool]:
    return lambda e: any(layer.kind == kind for layer in e.model.layers)


def _convolves(e: Experiment) -> bool:
    return any(layer.traits.spatial == "windows" for layer in e.model.layers)


_LATER = "needs synchronous updates"
_ONE = _without(lambda e: e.devices > 1, "one device: no gradients to synchronize")
_ALONE = _without(lambda e: e.machine.nodes > 1, "this machine is one node: no network")
_MODEL, _MACHINE, _SPLIT, _BATCH, _INPUT, _FAILURES = GROUPS

CONTROLS = (
    Control(
        "model.name",
        _MODEL,
        "Model",
        "list",
        "The network that is trained",
        _entries("models", lambda e: e.model.name),
        simple=True,
    ),
    Control(
        SEQUENCE,
        _MODEL,
        "Sequence",
        "steps",
        "Tokens of one sample",
        _sequences,
        _without(lambda e: "sequence" in e.model.options, "samples are no sequences"),
    ),
    Control("machine.name", _MACHINE, "Machine", "list", "The computer", _machines, simple=True),
    Control(
        "strategy.nodes",
        _MACHINE,
        "Nodes",
        "steps",
        "Nodes that train; the batch of a replica stays",
        _nodes,
        _ALONE,
        simple=True,
    ),
    Control(
        "strategy.devices_per_node",
        _MACHINE,
        "Devices a node",
        "steps",
        "GPUs, or ranks, in use in each node",
        _per_node,
        _without(lambda e: e.machine.devices_per_node > 1, "a node has one device"),
    ),
    Control(
        "times.rate",
        _MACHINE,
        "Device rate",
        "steps",
        "Factor on compute, memory bandwidth and kernel launches",
        _factors,
    ),
    Control(
        "times.bandwidth",
        _MACHINE,
        "Bandwidth",
        "steps",
        "Of the network between nodes; of links in the node where there is one node",
        _factors,
    ),
    Control(
        "times.latency",
        _MACHINE,
        "Latency",
        "steps",
        "Of every message, between nodes and inside",
        _factors,
    ),
    Control(
        "machine.nics",
        _MACHINE,
        "NICs a node",
        "steps",
        "Links from a node into the network",
        _nics,
        _ALONE,
    ),
    Control(
        "strategy.tensor",
        _SPLIT,
        "Tensor",
        "parts",
        "Devices that split each layer; the global batch stays",
        _degrees("tensor"),
    ),
    Control(
        "strategy.pipeline",
        _SPLIT,
        "Pipeline",
        "parts",
        "Stages of layers; the global batch stays",
        _degrees("pipeline"),
    ),
    Control(
        "strategy.spatial",
        _SPLIT,
        "Spatial",
        "parts",
        "Parts of each sample, with halo exchange",
        _degrees("spatial"),
        _without(_convolves, "this model has no convolutions"),
    ),
    Control(
        "strategy.microbatches",
        _SPLIT,
        "Microbatches",
        "steps",
        "Parts of a replica's batch, one after another",
        _powers(9, "microbatches"),
        _without(lambda e: e.strategy.update == "synchronous", _LATER),
    ),
    Control(
        "strategy.schedule",
        _SPLIT,
        "Schedule",
        "parts",
        "Order of the microbatches in the pipeline",
        _named(SCHEDULES),
        _without(lambda e: e.strategy.pipeline > 1, "needs a pipeline"),
    ),
    Control(
        "strategy.chunks",
        _SPLIT,
        "Chunks",
        "parts",
        "Stages that each rank of an interleaved pipeline holds",
        lambda e: [(f"{n}", n) for n in sorted({1, 2, 3, 4, 6, 8, int(e.strategy.chunks)})],
        _without(lambda e: e.strategy.schedule == "interleaved", "needs the interleaved schedule"),
    ),
    Control(
        "strategy.sequence_parallel",
        _SPLIT,
        "Sequence parallel",
        "tick",
        "Shards activations between layers",
        _ticks,
        _without(lambda e: e.strategy.tensor > 1, "needs tensor parallelism"),
    ),
    Control(
        "strategy.experts",
        _SPLIT,
        "Experts",
        "parts",
        "Replicas over which experts are sharded",
        _experts,
        _without(_has("experts"), "no experts in this model"),
    ),
    Control(
        "strategy.zero",
        _SPLIT,
        "ZeRO",
        "parts",
        "Shards over replicas: 1 optimizer state, 2 gradients, 3 weights",
        _zeros,
        _without(lambda e: replicas(e) > 1, "one replica: nothing to shard over"),
    ),
    Control(
        "strategy.recompute",
        _SPLIT,
        "Recompute",
        "parts",
        "Activations that backward computes again",
        _named(RECOMPUTES),
    ),
    Control(
        "strategy.offload", _SPLIT, "Offload", "parts", "What host memory holds", _named(OFFLOADS)
    ),
    Control(
        "strategy.batch",
        _BATCH,
        "Batch a replica",
        "steps",
        "Samples of one replica in a step",
        _powers(13, "batch"),
        simple=True,
    ),
    Control(
        "strategy.precision",
        _BATCH,
        "Precision",
        "list",
        "fp16 and bf16: mixed, with fp32 master weights",
        _precisions,
    ),
    Control(
        "strategy.optimizer",
        _BATCH,
        "Optimizer",
        "list",
        "What it stores for each weight takes memory",
        _named(OPTIMIZERS),
    ),
    Control(
        "strategy.allreduce",
        _BATCH,
        "Allreduce",
        "list",
        "Algorithm of gradient synchronization",
        _allreduces,
        _ONE,
    ),
    Control(
        "strategy.overlap",
        _BATCH,
        "Overlap",
        "tick",
        "Synchronize buckets while backward runs",
        _ticks,
        _ONE,
    ),
    Control(
        "strategy.bucket",
        _BATCH,
        "Bucket",
        "steps",
        "Gradients are sent in pieces of this size",
        _sizes,
        _ONE,
    ),
    Control(
        "run.epochs", _BATCH, "Epochs", "steps", "Passes over the data set", _epochs, simple=True
    ),
    Control(
        "dataset.name",
        _INPUT,
        "Data set",
        "list",
        "What is trained on",
        _entries("datasets", lambda e: e.dataset.name),
    ),
    Control(
        "storage.tier", _INPUT, "Read from", "list", "Storage that samples are read from", _tiers
    ),
    Control(
        "machine.node_mtbf",
        _FAILURES,
        "MTBF of a node",
        "steps",
        "Mean time between failures of one node",
        _mtbf,
    ),
    Control(
        "run.checkpoint_interval",
        _FAILURES,
        "Checkpoint",
        "steps",
        "Time between two checkpoints",
        _intervals,
        _without(
            lambda e: e.storage.tier, "choose storage under Input: checkpoints are written there"
        ),
    ),
)
NAMED = {control.field: control for control in CONTROLS}


def standing(experiment: Experiment, field: str, times: float = 1) -> Any:
    """Return where a control stands for an experiment."""
    e = experiment
    if field.startswith("times."):
        return times
    if field == "machine.name":
        return chosen(e.machine)
    if field == SEQUENCE:
        return e.model.options.get("sequence")
    if field == "strategy.devices_per_node":
        return int(e.devices_per_node)
    section, name = field.split(".")
    return getattr(getattr(e, section), name)
