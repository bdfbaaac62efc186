"""What the explorer can vary of an experiment, over which values, and the experiment at each of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.costs.compute import BYTES
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.explorer.controls import node_counts
from lib_dlhpc.layout import is_partitioned
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import ALLREDUCES, AUTO
from lib_dlhpc.spec.units import format_quantity

RANKS = "ranks"  # over which the samples of a step are partitioned, as in `dlhpc compare --sweep ranks=1,2`
NODES, DEVICES = "strategy.nodes", "strategy.devices_per_node"
BATCH, ALLREDUCE, BUCKET = "strategy.batch", "strategy.allreduce", "strategy.bucket"
MOST = 12  # values on a page
NICE = (1, 2, 5)


@dataclass(frozen=True)
class Axis:
    """A field that can be varied: what it is called, and values to begin with."""

    title: str
    field: str
    values: tuple[Any, ...]


def axes_of(experiment: Experiment) -> list[Axis]:
    """Return what can be varied of this experiment; the ranks of a split network cannot."""
    strategy, machine = experiment.strategy, experiment.machine
    found = []
    if not is_partitioned(experiment):
        if not int(experiment.servers):
            found.append(Axis("Ranks that share a step's samples", RANKS, _rank_counts(experiment)))
        if int(machine.nodes) > 1:
            nodes = node_counts(int(machine.nodes), int(strategy.nodes))
            found.append(Axis("Nodes, a batch on each device", NODES, _few(nodes)))
        else:
            here = node_counts(int(machine.devices_per_node), int(experiment.devices_per_node))
            found.append(Axis("Ranks, a batch on each", DEVICES, _few(here)))
    batch = int(strategy.batch)
    batches = sorted({max(batch * by // 4, 1) for by in (1, 2, 4, 8, 16)})
    return [
        *found,
        Axis("Batch a device", BATCH, tuple(batches)),
        Axis("Allreduce", ALLREDUCE, (AUTO, *ALLREDUCES)),
        Axis("Bucket", BUCKET, _buckets(experiment)),
    ]


def at(experiment: Experiment, setting: Mapping[str, Any]) -> Experiment:
    """Return the experiment with one setting of an axis, on its own machine. Raises SpecError."""
    fields = {name: value for name, value in setting.items() if name != RANKS}
    there = what_if(experiment, fields)
    return _partitioned(there, setting[RANKS]) if RANKS in setting else there


def values_from(text: str) -> list[Any]:
    """Return values that somebody wrote, such as "8, 16" or "1 MB, ring"; each once. Raises SpecError."""
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise SpecError("No values: expected some, with commas between them, such as 8, 16, 32.")
    if len(words) > MOST:
        raise SpecError(f"{len(words)} values: legal on this page: at most {MOST}.")
    return [int(word) if word.isascii() and word.isdigit() else word for word in words]


def _partitioned(experiment: Experiment, ranks: Any) -> Experiment:
    """Return the experiment on N ranks, over which the samples of a step are partitioned."""
    samples, node = int(experiment.global_batch), int(experiment.machine.devices_per_node)
    if type(ranks) is not int or ranks < 1:
        raise SpecError(f"ranks = {ranks!r}: expected a whole number, at least 1.")
    each = max(size for size in range(1, min(node, ranks) + 1) if ranks % size == 0)
    there = {NODES: ranks // each, DEVICES: each, BATCH: -(-samples // ranks)}
    return what_if(experiment, there)


def _rank_counts(experiment: Experiment) -> tuple[int, ...]:
    """Return numbers of ranks up to all of the machine, each with whole samples."""
    most = int(experiment.machine.nodes) * int(experiment.machine.devices_per_node)
    samples = int(experiment.global_batch)
    counts = node_counts(most, int(experiment.devices))
    return _few(counts[samples % counts == 0])


def _few(counts: np.ndarray) -> tuple[int, ...]:
    """Return at most MOST of the numbers, the largest ones."""
    return tuple(int(count) for count in counts)[-MOST:]


def _buckets(experiment: Experiment) -> tuple[str, ...]:
    """Return sizes from a fiftieth of all gradients to all of them at once."""
    strategy = replace(experiment.strategy, bucket=1e15)
    cut = buckets(experiment.model, strategy.bucket, BYTES[strategy.precision])
    whole = float(np.sum(cut.sizes))
    sizes = [lead * 10.0**power for power in range(16) for lead in NICE]
    first = next(number for number, size in enumerate(sizes) if size >= whole)
    return tuple(format_quantity(size, "B") for size in sizes[max(first - 5, 0) : first + 1])
