"""One move of one control: the choice after it, with what no longer fits put right, and a sentence on that.

A new machine has other tiers, other precisions and perhaps fewer nodes; a new model has its usual data set and
optimizer; other degrees of parallelism keep the global batch.
"""

from collections.abc import Mapping
from math import lcm
from typing import Any

import numpy as np

from lib_dlhpc.costs import peak_rate
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.explorer.choice import TIMES, Choice, History, experiment_of, value_at
from lib_dlhpc.explore.explorer.controls import DATASETS, NAMED, standing
from lib_dlhpc.explore.explorer.measured import OWN
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.changes.resplit import (
    DEGREES,
    NO_PIPELINE,
    fills_both_ends,
    interleavable,
    of_batch,
    resplit,
)
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.consistency import allreduces_on
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Device, Machine, load_machine
from lib_dlhpc.spec.measured_machine import STAND_IN
from lib_dlhpc.spec.strategy import AUTO, FP8, NARROW, SAME, SPLIT_BACKWARD, SPLIT_FIELDS, Strategy

PLAIN_WIRE = {"strategy.wire": SAME}
PLAIN_TOKENS = {"strategy.expert_wire": SAME}
DIRECT = {"strategy.expert_exchange": "direct"}
AT_HOME = {"strategy.experts": 1, **PLAIN_TOKENS, **DIRECT}
BLOCKS = {"strategy.zero_unit": "block"}
NO_ZERO = {"strategy.zero": 0, "strategy.shards": 0, "strategy.gather": "usual", **BLOCKS}
STREAMED = {"storage.access": "stream", "storage.local": ""}
Changes = dict[str, Any]


def moved_again(history: History, field: str, value: Any) -> tuple[Choice, Breakdown, str]:
    """Return the choice after one more move: of several moves of one control in a row only the last counts.

    So a control that returns to where it stood brings back all that its moves set beside it. Raises SpecError.
    """
    before = history.before([field])
    if before != history.now:
        try:
            return moved(before, field, value)
        except SpecError:
            pass
    return moved(history.now, field, value)


def moved(choice: Choice, field: str, value: Any) -> tuple[Choice, Breakdown, str]:
    """Return the choice after one move, its prediction, and what else was set; raises SpecError.

    Where devices cannot get one copy of a token each, each expert gets its own; where a model or a machine does not
    allow the present split, the network is not split.
    """
    experiment = experiment_of(choice)
    if value == standing(experiment, field, choice.changes.get(field, 1)):
        return choice, predict(experiment), ""
    first = consequences(experiment, field, value)
    ways = [first]
    if experiment.strategy.expert_exchange != "direct" and field != "strategy.expert_exchange":
        ways.append({**first, **DIRECT})
    if field in ("model.name", "machine.name") and experiment.strategy.is_split:
        ways.append(unsplit(experiment) | first)
    for others in ways[:-1]:
        try:
            return _moved(choice, experiment, field, {field: value, **others})
        except SpecError:
            pass
    return _moved(choice, experiment, field, {field: value, **ways[-1]})


def _moved(
    choice: Choice, experiment: Experiment, field: str, changes: Changes
) -> tuple[Choice, Breakdown, str]:
    further = choice.with_changes(changes)
    there = experiment_of(further)
    words = also(experiment, {key: to for key, to in changes.items() if key != field})
    other = other_batch(experiment, there) if field in DEGREES else ""
    return further, predict(there), " ".join(filter(None, (words, other)))


def other_batch(here: Experiment, there: Experiment) -> str:
    """Return why a split cannot keep the global batch; "" where it does."""
    now, then = int(here.global_batch), int(there.global_batch)
    if now == then:
        return ""
    replicas = int(there.devices) // int(there.strategy.replica)
    why = f"each of {there.strategy.microbatches:,} microbatches has a sample at least"
    if now % replicas:
        why = f"for {replicas:,} replicas that is no whole number of samples"
    return f"The global batch cannot stay {now:,} ({why}): it is {then:,} now."


def also(experiment: Experiment, others: Mapping[str, Any]) -> str:
    """Return in words which fields a move sets beside its own; "" where they stay as they are."""
    found = [
        f"{_label(key)} {_word(value)}"
        for key, value in others.items()
        if key not in TIMES and value_at(experiment, key) != value
    ]
    return f"Also set: {', '.join(found)}." if found else ""


def _label(key: str) -> str:
    return NAMED[key].label.lower() if key in NAMED else key.partition(".")[2].replace("_", " ")


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value) or "none"


def consequences(experiment: Experiment, field: str, value: Any) -> Changes:
    """Return what else must be set where a field becomes `value`."""
    s = experiment.strategy
    match field:
        case "model.name":
            return _of_model(value)
        case "machine.name":
            return _on_machine(experiment, load_machine(STAND_IN if value == OWN else value))
        case _ if field in DEGREES:
            return resplit(experiment, field, int(value))
        case "strategy.schedule":
            return _of_schedule(s, value)
        case "strategy.offload" if value != "none":
            found = {"strategy.schedule": "1f1b"} if s.splits_backward else {}
            return found | PLAIN_WIRE if value == "all" else found
        case "strategy.batch":
            return of_batch(experiment, int(value))
        case "strategy.microbatches" if s.mirrored and not fills_both_ends(value, s.pipeline):
            return {**NO_PIPELINE, "strategy.batch": max(int(s.batch), value)}
        case "strategy.microbatches" if value > s.batch:
            return {"strategy.batch": value}
        case "strategy.context_exchange" if value != "heads" and s.fused_attention == "off":
            return {"strategy.fused_attention": "auto"}
        case "strategy.fused_attention" if value == "off" and s.has_ring:
            return {"strategy.context_exchange": "heads"}
        case "strategy.experts":
            return {"strategy.shards": 0, **PLAIN_WIRE} if value > 1 else {**PLAIN_TOKENS, **DIRECT}
        case "strategy.precision" if value != FP8:
            return {**PLAIN_TOKENS}
        case "strategy.lora" if value:
            return _adapted(experiment)
        case "strategy.zero":
            rest = {key: none for key, none in NO_ZERO.items() if key != field}
            own: Changes = {} if value == 3 else {**BLOCKS}
            plain = {} if s.wire == "fp32" else PLAIN_WIRE
            return {**plain, **own} if value else rest
        case "strategy.wire" if value != SAME:
            near = {"strategy.offload": "activations"} if s.offload == "all" else {}
            zero = {} if value == "fp32" and s.precision != "fp64" else NO_ZERO
            return {**zero, **AT_HOME} | near
        case "storage.tier" if not value:
            return {"run.checkpoint_interval": 0.0, **STREAMED}
    return {}


def _of_schedule(s: Strategy, schedule: str) -> Changes:
    if schedule == "interleaved":
        many = interleavable(s.microbatches, s.pipeline)
        return {"strategy.chunks": 2, "strategy.microbatches": many}
    near: Changes = {"strategy.offload": "none"} if schedule in SPLIT_BACKWARD else {}
    if schedule == "dualpipe":
        near |= _of_both_ends(s)
    return {"strategy.chunks": 1, **near}


def _of_model(name: str) -> Changes:
    family = catalog.read("models", name)["family"] if name in catalog.names("models") else ""
    data = DATASETS.get(family, "imagenet")
    transformer = data in ("webtext", "wikipedia-books") or family in ("vit", "dit", "unet")
    usual = {"dataset.name": data, "strategy.optimizer": "adam" if transformer else "momentum"}
    return {**usual, "strategy.lora": 0, **PLAIN_TOKENS, **DIRECT}


def _of_both_ends(s: Strategy) -> Changes:
    """Return the microbatches, and the batch, with which a pipeline can be a DualPipe."""
    many = max(2 * int(s.pipeline), int(s.microbatches) // 2 * 2)
    batch = -(-int(s.batch) // many) * many
    return {"strategy.microbatches": many, "strategy.batch": batch}


def _adapted(e: Experiment) -> Changes:
    """Return what must be set for adapters, which are not priced with every kind of parallelism."""
    s, found = e.strategy, dict[str, Any]()
    if s.tensor > 1:
        found = {"strategy.tensor": 1, **resplit(e, "strategy.tensor", 1)}
    if s.splits_backward:
        found["strategy.schedule"] = "1f1b"
    if s.offload == "all":
        found["strategy.offload"] = "activations"
    return {**found, "strategy.gather": "usual"}


def unsplit(e: Experiment) -> Changes:
    """Return what takes every split away and keeps the global batch."""
    every = {f"strategy.{name}": getattr(Strategy, name) for name in SPLIT_FIELDS}
    batch = max(1, int(e.global_batch) // int(e.devices))
    rest = {"strategy.sequence_parallel": False, "strategy.data": 0, "strategy.batch": batch}
    return {**every, **AT_HOME, **NO_PIPELINE, **rest}


def _precision(device: Device, lost: str) -> str:
    """Return the precision nearest to one that a device lacks."""
    nearest = ("bf16", "fp16", "fp32") if lost in NARROW else ("fp32",)
    return next((each for each in nearest if each in device.peak), "bf16")


def _on_machine(e: Experiment, machine: Machine) -> Changes:
    s = e.strategy
    replica, each = int(s.replica), int(machine.devices_per_node)
    whole = lcm(replica, each) // each  # nodes that hold whole replicas
    nodes, domain = min(int(s.nodes), int(machine.nodes)) // whole * whole, int(machine.domain)
    if nodes > domain > 1:  # more than a domain are whole domains
        unit = lcm(whole, domain)
        nodes = nodes // unit * unit or domain // whole * whole
    changes: Changes = {"strategy.devices_per_node": 0, "strategy.nodes": max(nodes, 1)}
    if e.storage.tier not in machine.storage:
        changes |= {"storage.tier": "", "run.checkpoint_interval": 0.0, **STREAMED}
    if s.offload_to != "host" and s.offload_to not in machine.storage:
        changes["strategy.offload_to"] = "host"
    if np.isnan(peak_rate(machine.device, s.precision)):
        changes |= {"strategy.precision": _precision(machine.device, s.precision), **PLAIN_TOKENS}
    if s.allreduce not in (AUTO, *allreduces_on(machine)):
        changes["strategy.allreduce"] = AUTO
    return changes
