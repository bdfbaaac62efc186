"""The space of a plan: every combination of the fields of a layout, as columns; illegal ones counted by reason.

Devices and global batch stay: the degrees of parallelism give the replicas, and these the batch of each. What a network
does not allow beyond these rules is found when a combination is predicted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout import cut_points
from lib_dlhpc.layout.experts import expert_layers
from lib_dlhpc.planner.training_runs import samples
from lib_dlhpc.spec.consistency import allreduces_on
from lib_dlhpc.spec.experiment import Experiment, dumps
from lib_dlhpc.spec.planning import SETTINGS, Bounds, Planning, read_planning
from lib_dlhpc.spec.strategy import (
    AUTO,
    BY_DEVICE,
    BY_NODE,
    DIRECT,
    RUN_RECOMPUTES,
    RUN_SCHEDULES,
    SPLIT_BACKWARD,
)

Columns = dict[str, NDArray[Any]]
MOST = 10**10  # combinations, legal or not
KINDS = 2**20  # that are looked up in a table
SAME = "same as another"
LONG, PART = 32_768, 8192  # tokens of a sequence that is split, and of its part on a rank, at least
NOUNS = (  # which a prediction reads
    *("model", "dataset", "machine", "strategy"),
    *("storage", "calibration", "run", "training"),
)


@dataclass(frozen=True)
class Space:
    """The legal combinations: a column for each field of the strategy; and how many were left out, by reason.

    numbers: of each, among all combinations of the axes.
    """

    columns: Columns
    left_out: Counter[str]
    numbers: NDArray[np.int64]
    axes: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        """Return the number of legal combinations."""
        return len(self.numbers)

    def changes(self, row: int) -> dict[str, Any]:
        """Return a combination as dotted fields."""
        return changes_of(self.columns, row)

    @cached_property
    def _places(self) -> dict[str, NDArray[np.int64]]:
        """Which value of each axis a combination has."""
        found, rest = dict[str, NDArray[np.int64]](), self.numbers
        for name in reversed([*self.axes]):
            rest, found[name] = np.divmod(rest, len(self.axes[name]))
        return found

    def kinds(self, *names: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the first row of each kind, and which kind each row is: of one are rows with the same values of these
        axes."""
        code, count = np.zeros(len(self), np.int64), 1
        for name in self.axes.keys() & {*names}:
            code, count = (
                code * len(self.axes[name]) + self._places[name],
                count * len(self.axes[name]),
            )
        if count > KINDS:
            every, code = np.unique(code, return_inverse=True)
            count = len(every)
        first = np.full(count, len(self))
        first[code[::-1]] = np.arange(len(self))[::-1]  # of equal ones the last assigned stays
        rows = np.sort(first[first < len(self)])
        number = np.zeros(count, np.intp)
        number[code[rows]] = np.arange(len(rows))
        return rows, number[code]

    def has(self, axis: str, *values: Any) -> NDArray[np.bool_]:
        """Return where an axis has one of some values."""
        rows, kind = self.kinds(axis)
        return np.isin(self.columns[axis][rows], values)[kind]

    def only(self, rows: NDArray[np.intp]) -> "Space":
        """Return some of them."""
        legal = {name: each[rows] for name, each in self.columns.items()}
        return Space(legal, self.left_out, self.numbers[rows], self.axes)


def keyed(experiment: Experiment) -> Keyed[Experiment]:
    """Return an experiment with what predictions read of it as the key: not its [plan]."""
    nouns = (getattr(experiment, name) for name in NOUNS)
    return Keyed(experiment, *map(id, nouns), experiment.warnings)


def met_before(experiment: Experiment) -> Experiment:
    """Return a run with the nouns of an equal one, if that was planned before: what is known of it is kept by these."""
    bare = replace(experiment, plan=Planning(), warnings=())
    known = _first(Keyed(bare, dumps(bare)))
    pairs = ((name, getattr(known, name), getattr(experiment, name)) for name in NOUNS)
    return replace(experiment, **{name: old for name, old, own in pairs if old == own})


@lru_cache(maxsize=64)
def _first(experiment: Keyed[Experiment]) -> Experiment:
    return experiment.value


def changes_of(columns: Columns, row: Any) -> dict[str, Any]:
    """Return a row of columns as dotted fields."""
    return {f"strategy.{name}": each[row].item() for name, each in columns.items()}


def alike(columns: Sequence[NDArray[Any]]) -> list[NDArray[np.intp]]:
    """Return the rows of each combination of values that occurs."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values = {*column.tolist()}
        code *= len(values)
        for number, value in enumerate(values):
            code[column == value] += number
    order = np.argsort(code, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(code[order])) + 1)


def axes_of(
    experiment: Experiment, choose: Mapping[str, Any] | None = None
) -> dict[str, list[Any]]:
    """Return the values of each field that are tried; choose: axes, in place of those of the [plan].

    Raises SpecError for a field that cannot be planned, or for too many combinations.
    """
    asked = experiment.plan.axes if choose is None else read_planning({"axes": choose}).axes
    axes = _defaults(experiment, asked.get("nodes", (int(experiment.strategy.nodes),)))
    for name, values in asked.items():
        if isinstance(values, Bounds):
            axes[name] = _within(name, axes[name], values)
        elif name not in SETTINGS:  # each of these is a run of its own (training_runs.py)
            axes[name] = list(values)
    if (count := combinations(axes)) > MOST:
        raise SpecError(f"plan.axes: {count:,} combinations; legal: up to {MOST:,}.")
    return axes


def combinations(axes: Mapping[str, Sequence[Any]]) -> int:
    """Return the number of combinations, legal or not."""
    return prod(len(values) for values in axes.values())


def space(
    experiment: Experiment,
    choose: Mapping[str, Any] | None = None,
    start: int = 0,
    stop: int | None = None,
) -> Space:
    """Return the legal combinations of a scalar experiment, of those numbered from `start` to before `stop`.

    Other arguments, and what is raised, are as in `axes_of`.
    """
    axes = axes_of(experiment, choose)
    numbers = np.arange(start, combinations(axes) if stop is None else stop)
    columns = values_at(axes, numbers)
    devices = _follow(columns, experiment)
    left_out, alive = Counter[str](), np.ones(len(numbers), bool)
    for reason, wrong in _rules(columns, devices, experiment):
        left_out[reason] += int((alive & wrong).sum())
        alive &= ~wrong
    legal = {name: each[alive] for name, each in columns.items()}
    return Space(legal, +left_out, numbers[alive], axes)


def columns_at(
    experiment: Experiment, axes: Mapping[str, Sequence[Any]], numbers: NDArray[np.int64]
) -> Columns:
    """Return combinations, by their numbers, with the fields that follow from others."""
    columns = values_at(axes, numbers)
    _follow(columns, experiment)
    return columns


def values_at(axes: Mapping[str, Sequence[Any]], numbers: NDArray[np.int64]) -> Columns:
    """Return the value of each axis in each combination; the last axis varies fastest."""
    return {name: values_of(axes, name, numbers) for name in axes}


def values_of(
    axes: Mapping[str, Sequence[Any]], axis: str, numbers: NDArray[np.int64]
) -> NDArray[Any]:
    """Return the value of one axis in each combination."""
    names = list(axes)
    faster = prod(len(axes[name]) for name in names[names.index(axis) + 1 :])
    return np.array(axes[axis])[numbers // faster % len(axes[axis])]


def _follow(columns: Columns, experiment: Experiment) -> Any:
    """Add the replicas and the batch of each, which follow from the other columns; return the devices."""
    nodes = columns.get("nodes", np.array(int(experiment.strategy.nodes)))
    devices = nodes * int(experiment.devices_per_node)
    replica = columns["tensor"] * columns["pipeline"] * columns["spatial"] * columns["context"]
    data = devices // replica
    columns["data"] = np.broadcast_to(data, replica.shape).copy()
    columns["batch"] = samples(experiment) // np.maximum(data, 1)
    return devices


def _defaults(experiment: Experiment, nodes: Any) -> dict[str, list[Any]]:
    """Return the values of each field that are tried by default, those of the experiment among them.

    nodes: the numbers of nodes that are tried.
    """
    model, now = experiment.model, experiment.strategy
    each, domain = int(experiment.devices_per_node), int(experiment.machine.domain)
    devices = {degree for many in nodes for degree in divisors(each * many)}
    near = {degree for many in nodes for degree in divisors(each * min(domain, many))}
    flat = len(model.input_shape) < 3
    scores = any(layer.traits.selective for layer in model.layers)  # fused attention stores none
    positions = any(layer.traits.tensor == "heads" for layer in model.layers)
    counts = [layer.attributes["experts"] for layer in expert_layers(model)]
    sharded = {device for device in devices if gcd(*counts) % device == 0} if counts else set()
    axes: dict[str, list[Any]] = {
        "tensor": sorted({*near, int(now.tensor)}),
        "pipeline": [p for p in sorted(devices) if p < len(cut_points(model, 1))],
        "spatial": [1] if flat else sorted(near),
        "context": _contexts(experiment, devices),
        "sequence_parallel": sorted({False, positions, bool(now.sequence_parallel)}),
        "microbatches": divisors(samples(experiment)),
        "schedule": list(dict.fromkeys((*RUN_SCHEDULES, now.schedule))),
        "chunks": sorted({1, 2, int(now.chunks)}),
        "zero": [0, 1, 2, 3],
        "recompute": list(
            dict.fromkeys(
                (*(way for way in RUN_RECOMPUTES if scores or way != "selective"), now.recompute)
            )
        ),
    }
    return axes | ({"experts": sorted({*sharded, int(now.experts)})} if counts else {})


def _contexts(experiment: Experiment, devices: set[int]) -> list[int]:
    """Return the context degrees that are tried: of a long sequence those that leave a rank PART tokens or more."""
    model, now = experiment.model, int(experiment.strategy.context)
    sequence = model.input_shape[0] if model.reads_tokens else 1
    several = [
        device for device in devices if device & (device - 1) == 0 and device * PART <= sequence
    ]
    return sorted({1, now, *several} if sequence >= LONG else {now})


def _within(name: str, values: list[int], bounds: Bounds) -> list[int]:
    least = values[0] if bounds.least is None else bounds.least
    most = values[-1] if bounds.most is None else bounds.most
    found = [value for value in values if least <= value <= most]
    if not found:
        legal = ", ".join(map(str, values))
        raise SpecError(f"plan.axes.{name}: none within {least} and {most}; legal here: {legal}.")
    return found


def divisors(number: int) -> list[int]:
    """Return what divides a number, in order."""
    return [index for index in range(1, number + 1) if number % index == 0]


def _rules(
    c: Columns, devices: Any, experiment: Experiment
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield what is illegal, or the same as another combination: a reason, and where it applies."""
    replica, data = (
        c["tensor"] * c["pipeline"] * c["spatial"] * c["context"],
        np.maximum(c["data"], 1),
    )
    offload = c.get("offload", np.array(experiment.strategy.offload))
    interleaved, staged = c["schedule"] == "interleaved", c["pipeline"] > 1
    yield (
        "tensor x pipeline x spatial x context does not divide the devices",
        devices % replica != 0,
    )
    yield "the replicas do not divide the global batch", samples(experiment) % data != 0
    yield "microbatches do not divide the batch", c["batch"] % c["microbatches"] != 0
    yield "tensor and spatial at once", (c["tensor"] > 1) & (c["spatial"] > 1)
    yield "sequence parallelism without tensor", c["sequence_parallel"] & (c["tensor"] == 1)
    yield (
        SAME,
        ~staged & (c["schedule"] != "1f1b") | (c["zero"] > 0) & (c["data"] * c["context"] == 1),
    )
    yield "chunks without the interleaved schedule", (c["chunks"] > 1) & ~interleaved
    yield SAME, interleaved & (c["chunks"] == 1)
    yield (
        "interleaved, microbatches not a multiple of the stages",
        interleaved & (c["microbatches"] % c["pipeline"] != 0),
    )
    apart = np.isin(c["schedule"], SPLIT_BACKWARD) & staged
    yield "offload with separate weight gradients", (offload != "none") & apart
    dual, few = c["schedule"] == "dualpipe", c["microbatches"] < 2 * c["pipeline"]
    odd = (c["pipeline"] % 2 > 0) | (c["microbatches"] % 2 > 0)
    yield (
        "dualpipe, odd stages or microbatches, or fewer than two per stage",
        dual & staged & (odd | few),
    )
    yield from _rules_of_asked(c, data, experiment)


def _rules_of_asked(
    c: Columns, data: Any, experiment: Experiment
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the same of axes that a plan has only where they are asked for."""
    if "experts" in c and experiment.strategy.wire != "same":
        yield "experts with a format on the wire", c["experts"] > 1
    if "offload" in c and experiment.strategy.wire != "same":
        yield "weights offloaded with a format on the wire", c["offload"] == "all"
    if "experts" in c:
        yield "experts do not divide the replicas", data % c["experts"] != 0
    if {"experts", "expert_exchange"} & c.keys():
        yield from _rules_of_copies(c, experiment)
    if "gather" in c:
        yield "gather without ZeRO", (c["gather"] != "usual") & (c["zero"] == 0)
    if "allreduce" in c:
        known = (AUTO, *allreduces_on(experiment.machine))
        yield "allreduce in switches that cannot add", ~np.isin(c["allreduce"], known)
    if "zero_unit" in c:
        yield "layers without ZeRO 3", (c["zero_unit"] != "block") & (c["zero"] != 3)
    if "tensor_pieces" in c:
        yield SAME, (c["tensor_pieces"] > 1) & (c["tensor"] == 1)
    if "stage_cut" in c:
        yield SAME, (c["stage_cut"] == "work") & (c["pipeline"] == 1)
    if "shards" in c:
        yield "shards without ZeRO", (c["shards"] > 0) & (c["zero"] == 0)
        yield (
            "shards do not divide the replicas",
            data * c["context"] % np.maximum(c["shards"], 1) != 0,
        )


def _rules_of_copies(c: Columns, experiment: Experiment) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield where devices or nodes get no copies (layout/experts.py); that groups divide, a prediction finds."""
    nodes = c.get("nodes", np.array(int(experiment.strategy.nodes)))
    node = int(experiment.devices_per_node) * np.minimum(int(experiment.machine.domain), nodes)
    near = np.maximum(1, node // (c["tensor"] * c["spatial"]))  # replicas
    experts = c.get("experts", np.array(int(experiment.strategy.experts)))
    how = c.get("expert_exchange", np.array(experiment.strategy.expert_exchange))
    once, by_node, inside = how != DIRECT, how == BY_NODE, experts <= near
    if "expert_exchange" in c:
        yield SAME, once & (experts == 1)
    yield "one copy for a device with tensor", once & (c["tensor"] > 1) & (experts > 1)
    if "expert_exchange" in c and np.any(how == BY_DEVICE):
        yield SAME, by_node & inside
    yield "copies by node, experts do not fill nodes", by_node & ~inside & (experts % near != 0)
