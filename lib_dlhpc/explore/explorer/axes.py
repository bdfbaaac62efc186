"""What the explorer can vary of an experiment, over which values, and the experiment at each of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib_dlhpc.costs import BYTES, buckets
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.explorer.controls import node_counts
from lib_dlhpc.explore.explorer.moves import consequences
from lib_dlhpc.layout import is_partitioned
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.spec.consistency import allreduces_on
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.strategy import AUTO
from lib_dlhpc.spec.units import format_quantity

RANKS = "ranks"  # over which the samples of a step are partitioned, as in `dlhpc compare --sweep ranks=1,2`
NODES, DEVICES = "strategy.nodes", "strategy.devices_per_node"
BATCH, ALLREDUCE, BUCKET = "strategy.batch", "strategy.allreduce", "strategy.bucket"
MOST = 12  # values on a page
SIZES = [lead * 10.0**power for power in range(16) for lead in (1, 2, 5)]  # B


@dataclass(frozen=True)
class Axis:
    """A field that can be varied: what it is called, and values to begin with."""

    title: str
    field: str
    values: tuple[Any, ...]


def axes_of(e: Experiment) -> list[Axis]:
    """Return what can be varied of this experiment; the ranks of a split network cannot."""
    batch = int(e.strategy.batch)
    batches = sorted({max(batch * by // 4, 1) for by in (1, 2, 4, 8, 16)})
    batches = [each for each in batches if _is_possible(e, {BATCH: each})]
    return [
        *([] if is_partitioned(e) else _of_ranks(e)),
        Axis("Batch per device", BATCH, tuple(batches)),
        Axis("Allreduce", ALLREDUCE, (AUTO, *allreduces_on(e.machine))),
        Axis("Bucket", BUCKET, _buckets(e)),
    ]


def _of_ranks(e: Experiment) -> list[Axis]:
    nodes, each = int(e.machine.nodes), int(e.machine.devices_per_node)
    domain = int(e.machine.domain)
    ranks = node_counts(nodes * each, int(e.devices), domain * each if domain > 1 else 1)
    whole = _few(ranks[int(e.global_batch) % ranks == 0])
    found = [] if int(e.servers) else [Axis("Ranks that share a step's samples", RANKS, whole)]
    if nodes > 1:
        counts = node_counts(nodes, int(e.strategy.nodes), domain)
        return [*found, Axis("Nodes, a batch on each device", NODES, _few(counts))]
    counts = node_counts(each, int(e.devices_per_node))
    return [*found, Axis("Ranks, a batch on each", DEVICES, _few(counts))]


def _few(counts: Iterable[Any]) -> tuple[int, ...]:
    """Return at most MOST of the numbers, the largest ones."""
    return tuple(map(int, counts))[-MOST:]


def _buckets(e: Experiment) -> tuple[str, ...]:
    """Return sizes from a fiftieth of all gradients to all of them at once."""
    whole = float(np.sum(buckets(e.model, 1e15, BYTES[e.strategy.precision]).sizes))
    first = next(number for number, size in enumerate(SIZES) if size >= whole)
    return tuple(format_quantity(size, "B") for size in SIZES[max(first - 5, 0) : first + 1])


def at(experiment: Experiment, setting: Mapping[str, Any]) -> Experiment:
    """Return the experiment with one setting of an axis, on its own machine. Raises SpecError.

    What a move of the same control would set beside it is set here, too.
    """
    own = {name: value for name, value in setting.items() if name != RANKS}
    there = what_if(experiment, {**beside(experiment, own), **own})
    return _partitioned(there, setting[RANKS]) if RANKS in setting else there


def _is_possible(experiment: Experiment, setting: Mapping[str, Any]) -> bool:
    try:
        at(experiment, setting)
    except SpecError:
        return False
    return True


def beside(experiment: Experiment, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a move of the control of a setting sets beside it, such as the microbatches of another batch."""
    whole = {name: value for name, value in setting.items() if type(value) is int and value > 0}
    found: dict[str, Any] = {}
    for name, value in whole.items():
        found |= consequences(experiment, name, value)
    return found


def _partitioned(experiment: Experiment, ranks: Any) -> Experiment:
    """Return the experiment on N ranks, over which the samples of a step are partitioned."""
    samples, node = int(experiment.global_batch), int(experiment.machine.devices_per_node)
    if type(ranks) is not int or ranks < 1:
        raise SpecError(f"ranks = {ranks!r}: expected a whole number, at least 1.")
    each = max(size for size in range(1, min(node, ranks) + 1) if ranks % size == 0)
    there = {NODES: ranks // each, DEVICES: each, BATCH: -(-samples // ranks)}
    return what_if(experiment, there)


def values_from(text: str) -> list[Any]:
    """Return values that somebody wrote, such as "8, 16" or "1 MB, ring"; each once. Raises SpecError."""
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise SpecError("No values: expected some, with commas between them, such as 8, 16, 32.")
    if len(words) > MOST:
        raise SpecError(f"{len(words)} values: legal on this page: at most {MOST}.")
    return [int(word) if word.isascii() and word.isdigit() else word for word in words]
