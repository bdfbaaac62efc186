"""The limits a run breaks: which, by how much, and what would bring it back."""

import math
from typing import TYPE_CHECKING

from lib_dlhpc.costs.checkpoints import saving
from lib_dlhpc.predict.memory import server_bytes
from lib_dlhpc.spec.machine import storage_tier
from lib_dlhpc.spec.units import format_quantity

if TYPE_CHECKING:
    from lib_dlhpc.predict.breakdown import Breakdown


def walls_hit(prediction: "Breakdown") -> list[str]:
    """Return one sentence for each broken limit of a scalar experiment; an empty list if it can run."""
    walls = [_memory_wall, _offload_wall, _server_wall, _storage_wall, _copy_wall]
    return [sentence for wall in walls for sentence in wall(prediction)]


def largest_batch(prediction: "Breakdown") -> int:
    """Return the largest batch a device can hold with everything else unchanged; 0 if none."""
    experiment, terms = prediction.experiment, prediction.memory
    growing = sum(terms[name] for name in ("activations", "working set", "input batch"))
    fixed = prediction.memory_total - growing
    room = experiment.machine.device.memory - fixed
    return max(int(room / (growing / experiment.strategy.batch)), 0)


def _memory_wall(prediction: "Breakdown") -> list[str]:
    capacity, total = prediction.experiment.machine.device.memory, prediction.memory_total
    if total <= capacity:
        return []
    if prediction.experiment.strategy.is_split:
        fullest = max(prediction.moments, key=lambda moment: moment.total)
        largest = max(fullest.terms, key=lambda name: fullest.terms[name])
        return [
            f"Memory: {fullest.when}, a device needs {format_quantity(total, 'B')} and has"
            f" {format_quantity(capacity, 'B')}, {_too_much(total / capacity)};"
            f" {format_quantity(total - capacity, 'B')} are missing, and most of it is {largest}."
        ]
    most = largest_batch(prediction)
    way_out = (
        f"the largest batch a device that fits is {most}"
        if most
        else "not even one sample fits: the model must be split, its state sharded, or kept out of core"
    )
    return [
        f"Memory: one device needs {format_quantity(total, 'B')} and has {format_quantity(capacity, 'B')},"
        f" {_too_much(total / capacity)}; {way_out}."
    ]


def _offload_wall(prediction: "Breakdown") -> list[str]:
    needed, room = prediction.offloaded, prediction.room_elsewhere
    if needed <= room:
        return []
    strategy = prediction.experiment.strategy
    place = "host memory" if strategy.offload_to == "host" else strategy.offload_to
    return [
        f"Memory: a device offloads {format_quantity(needed, 'B')}, and its part of {place} is"
        f" {format_quantity(room, 'B')}, {_too_much(needed / room)}."
    ]


def _server_wall(prediction: "Breakdown") -> list[str]:
    experiment = prediction.experiment
    device, needed = experiment.machine.device, server_bytes(experiment)
    if needed <= device.memory:
        return []
    room = device.memory - device.reserved_memory
    part = (needed - device.reserved_memory) * experiment.strategy.servers
    way_out = f"; it takes {math.ceil(part / room):,} servers" if room > 0 else ""
    return [
        f"Memory: a parameter server needs {format_quantity(needed, 'B')} and has"
        f" {format_quantity(device.memory, 'B')}, {_too_much(needed / device.memory)}{way_out}."
    ]


def _storage_wall(prediction: "Breakdown") -> list[str]:
    experiment = prediction.experiment
    if not experiment.storage.tier:
        return []
    tier = storage_tier(experiment.machine, experiment.storage.tier)
    nodes = int(experiment.strategy.nodes) if tier.scope == "node" else 1
    size, room = experiment.dataset.bytes, tier.capacity * nodes
    if size <= room:
        return []
    where = f"spread over {nodes} nodes" if tier.scope == "node" else "of the whole system"
    needed = f"; it takes {math.ceil(size / tier.capacity):,} nodes" if tier.scope == "node" else ""
    return [
        f"Storage: the data set is {format_quantity(size, 'B')} and {tier.name} {where} holds"
        f" {format_quantity(room, 'B')}, {_too_much(size / room)}{needed}."
    ]


def _copy_wall(prediction: "Breakdown") -> list[str]:
    experiment = prediction.experiment
    needed, room = saving(experiment).host_copy, experiment.machine.host_memory
    if not experiment.run.checkpoint_interval or needed <= room:
        return []
    return [
        f"Memory: a host keeps {format_quantity(needed, 'B')} of state until it is written, and has"
        f" {format_quantity(room, 'B')}, {_too_much(needed / room)}; let all nodes write their parts."
    ]


def _too_much(factor: float) -> str:
    """Say by how much a limit is broken: in percent, or as a factor."""
    return f"{factor - 1:.0%} too much" if factor < 10 else f"{factor:,.0f} times too much"
