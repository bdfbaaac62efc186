"""One move of one control: the choice after it, with what no longer fits put right, and a sentence on that.

A new machine has other tiers, other precisions and perhaps fewer nodes; a new model has its usual data set and
optimizer; other degrees of parallelism keep the global batch.
"""

from collections.abc import Mapping
from math import lcm
from typing import Any

import numpy as np

from lib_dlhpc.costs.compute import peak_rate
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.explorer.choice import TIMES, Choice, experiment_of
from lib_dlhpc.explore.explorer.controls import DATASETS, NAMED, standing
from lib_dlhpc.explore.explorer.measured import OWN
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine, load_machine
from lib_dlhpc.spec.measured_machine import STAND_IN
from lib_dlhpc.spec.strategy import SPLIT_FIELDS, Strategy

DEGREES = ("strategy.tensor", "strategy.pipeline", "strategy.spatial")
Changes = dict[str, Any]


def moved(choice: Choice, field: str, value: Any) -> tuple[Choice, Breakdown, str]:
    """Return the choice after one move, its prediction, and what else was set; raises SpecError.

    Where a model or a machine does not allow the present split, the network is not split.
    """
    experiment = experiment_of(choice)
    if value == standing(experiment, field, choice.changes.get(field, 1)):
        return choice, predict(experiment), ""
    others = consequences(experiment, field, value)
    try:
        return _predicted(choice, field, value, others)
    except SpecError:
        if field not in ("model.name", "machine.name") or not experiment.strategy.is_split:
            raise
    return _predicted(choice, field, value, unsplit(experiment) | others)


def _predicted(
    choice: Choice, field: str, value: Any, others: Changes
) -> tuple[Choice, Breakdown, str]:
    further = choice.with_changes({field: value, **others})
    return further, predict(experiment_of(further)), also(choice, others)


def also(choice: Choice, others: Mapping[str, Any]) -> str:
    """Return in words which fields a move sets beside its own; "" where they stay as they are."""
    experiment = experiment_of(choice)
    found = [
        f"{_label(key)} {_word(value)}"
        for key, value in others.items()
        if key not in TIMES and _at(experiment, key) != value
    ]
    return f"Also set: {', '.join(found)}." if found else ""


def consequences(experiment: Experiment, field: str, value: Any) -> Changes:
    """Return what else must be set where a field becomes `value`."""
    if field == "model.name":
        family = catalog.read("models", value)["family"] if value in catalog.names("models") else ""
        optimizer = "adam" if family in ("bert", "gpt") else "momentum"
        return {"dataset.name": DATASETS.get(family, "imagenet"), "strategy.optimizer": optimizer}
    if field == "machine.name":
        return _on_machine(experiment, load_machine(STAND_IN if value == OWN else value))
    if field in DEGREES:
        return _degree(experiment, field, int(value))
    s = experiment.strategy
    if field == "strategy.schedule":
        if value != "interleaved":
            return {"strategy.chunks": 1}
        return {"strategy.chunks": 2, "strategy.microbatches": _whole(s.microbatches, s.pipeline)}
    if field == "strategy.batch" and s.microbatches > 1:  # of as many samples as before
        many = max(1, int(value) // max(1, int(s.batch) // int(s.microbatches)))
        whole = s.schedule == "interleaved"
        return {"strategy.microbatches": _whole(many, s.pipeline) if whole else many}
    if field == "strategy.microbatches" and value > s.batch:
        return {"strategy.batch": value}
    if field == "strategy.experts" and value > 1:
        return {"strategy.zero": 0}
    if field == "strategy.zero" and value:
        return {"strategy.experts": 1}
    if field == "storage.tier" and not value:
        return {"run.checkpoint_interval": 0.0, "storage.access": "stream", "storage.local": ""}
    return {}


def _degree(e: Experiment, field: str, value: int) -> Changes:
    """Keep the global batch and the samples of a microbatch; drop what cannot be together."""
    s = e.strategy
    degrees = {key: int(getattr(s, key.split(".")[1])) for key in DEGREES} | {field: value}
    if value > 1 and field == "strategy.tensor":
        degrees["strategy.spatial"] = 1
    if value > 1 and field == "strategy.spatial":
        degrees["strategy.tensor"] = 1
    tensor, pipeline, spatial = degrees.values()
    replica = tensor * pipeline * spatial
    batch = max(1, int(s.batch) * replica // int(s.replica))
    samples = max(1, int(s.batch) // int(s.microbatches))  # of a microbatch
    many = max(1, batch // samples)
    if pipeline > 1 and s.pipeline == 1 and s.microbatches == 1:
        many = min(batch, 4 * pipeline)  # a pipeline of one microbatch is all bubble
    if pipeline > 1 and s.schedule == "interleaved":
        many = _whole(many, pipeline)
    batch = max(batch, many)
    found: Changes = {**degrees, "strategy.batch": batch, "strategy.microbatches": many}
    if pipeline == 1:
        found |= {"strategy.schedule": "1f1b", "strategy.chunks": 1}
    elif s.zero > 1:
        found["strategy.zero"] = 1
    if tensor == 1:
        found["strategy.sequence_parallel"] = False
    if s.data:
        found["strategy.data"] = 0
    del found[field]
    return found


def _whole(many: Any, stages: Any) -> int:
    """Return the next number of microbatches that an interleaved pipeline can have."""
    return -(-int(many) // int(stages)) * int(stages)


def unsplit(e: Experiment) -> Changes:
    """Return what takes every split away and keeps the global batch."""
    every = {f"strategy.{name}": getattr(Strategy, name) for name in SPLIT_FIELDS}
    rest = {"strategy.schedule": "1f1b", "strategy.chunks": 1, "strategy.sequence_parallel": False}
    batch = max(1, int(e.global_batch) // int(e.devices))
    return {**every, **rest, "strategy.data": 0, "strategy.batch": batch}


def _on_machine(e: Experiment, machine: Machine) -> Changes:
    s = e.strategy
    changes: Changes = {"strategy.devices_per_node": 0}
    nodes = min(int(s.nodes), int(machine.nodes))
    replica, each = int(s.replica), int(machine.devices_per_node)
    whole = lcm(replica, each) // each  # nodes that hold whole replicas
    changes["strategy.nodes"] = max(nodes // whole * whole, 1)
    if e.storage.tier not in machine.storage:
        changes |= {"storage.tier": "", "run.checkpoint_interval": 0.0}
        changes |= {"storage.access": "stream", "storage.local": ""}
    if s.offload_to != "host" and s.offload_to not in machine.storage:
        changes["strategy.offload_to"] = "host"
    if np.isnan(peak_rate(machine.device, s.precision)):
        changes["strategy.precision"] = "bf16" if "fp32" not in machine.device.peak else "fp32"
    return changes


def _at(experiment: Experiment, key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(experiment, section), name)


def _label(key: str) -> str:
    return NAMED[key].label.lower() if key in NAMED else key.partition(".")[2].replace("_", " ")


def _word(value: Any) -> str:
    return (
        {True: "on", False: "off"}.get(value, str(value))
        if isinstance(value, bool)
        else str(value) or "none"
    )
