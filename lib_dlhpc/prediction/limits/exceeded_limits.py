"""The limits that a run exceeds: which, by how much, and what would bring it back within them.

Most say that it cannot run; the last one that it can, and starves: its input does not keep up.
"""

import math
from typing import TYPE_CHECKING

from lib_dlhpc.costs.checkpoints import saving
from lib_dlhpc.costs.storage_reads import data_set_bytes
from lib_dlhpc.prediction.memory.device_ledger import server_bytes
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import StorageTier, storage_tier
from lib_dlhpc.spec.units import count, format_plain, format_quantity

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown

STARVING = 0.05  # share of a step that waits for input, from which on it is reported


def walls_hit(prediction: "Breakdown") -> list[str]:
    """Return one sentence for each limit that a scalar experiment exceeds; none if it runs and is never starved."""
    walls = (_memory_wall, *_STOPPING, _lost_wall, _input_wall)
    return [sentence for wall in walls for sentence in wall(prediction)]


def stopping(prediction: "Breakdown") -> list[str]:
    """Return a sentence for each limit other than a device's memory that stops a run."""
    return [sentence for wall in _STOPPING for sentence in wall(prediction)]


def exceeds_more(there: "Breakdown", here: "Breakdown") -> bool:
    """Return whether one run exceeds a limit, other than a device's memory, that another does not."""
    return any(wall(there) and not wall(here) for wall in (*_STOPPING, _lost_wall))


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
            f" it is {format_quantity(total - capacity, 'B')} short, and the largest term is {largest}."
        ]
    most = largest_batch(prediction)
    remedy = (
        f"the largest batch per device that fits is {most}"
        if most
        else "not even one sample fits: the model must be split, its state sharded, or kept out of core"
    )
    return [
        f"Memory: one device needs {format_quantity(total, 'B')} and has {format_quantity(capacity, 'B')},"
        f" {_too_much(total / capacity)}; {remedy}."
    ]


def _offload_wall(prediction: "Breakdown") -> list[str]:
    needed, room = prediction.offloaded, prediction.offload_capacity
    if needed <= room:
        return []
    strategy = prediction.experiment.strategy
    place = "host memory" if strategy.offload_to == "host" else strategy.offload_to
    return [
        f"Memory: a device offloads {format_quantity(needed, 'B')}, but its part of {place} is"
        f" {format_quantity(room, 'B')}, {_too_much(needed / room)}."
    ]


def _server_wall(prediction: "Breakdown") -> list[str]:
    experiment = prediction.experiment
    device, needed = experiment.machine.device, server_bytes(experiment)
    if needed <= device.memory:
        return []
    room = device.memory - device.reserved_memory
    part = (needed - device.reserved_memory) * experiment.strategy.servers
    remedy = f"; {_many(part / room)} servers are needed" if room > 0 else ""
    return [
        f"Memory: a parameter server needs {format_quantity(needed, 'B')} and has"
        f" {format_quantity(device.memory, 'B')}, {_too_much(needed / device.memory)}{remedy}."
    ]


def _storage_wall(prediction: "Breakdown") -> list[str]:
    experiment = prediction.experiment
    if not experiment.storage.tier:
        return []
    tier = storage_tier(experiment.machine, experiment.storage.tier)
    if tier.scope == "node" and experiment.storage.access == "stream":
        return _own_wall(experiment, tier)
    nodes = int(experiment.strategy.nodes) if tier.scope == "node" else 1
    size, room = data_set_bytes(experiment), tier.capacity * nodes
    if size <= room:
        return []
    where = f"spread over {count(nodes, 'node')}" if tier.scope == "node" else "of the whole system"
    needed = f"; {_many(size / tier.capacity)} nodes are needed" if tier.scope == "node" else ""
    return [
        f"Storage: the data set is {format_quantity(size, 'B')} and {tier.name} {where} holds"
        f" {format_quantity(room, 'B')}, {_too_much(size / room)}{needed}."
    ]


def _own_wall(experiment: Experiment, tier: StorageTier) -> list[str]:
    """Each node draws its samples from the whole data set, and has only its own tier."""
    size, room = data_set_bytes(experiment), tier.capacity
    if size <= room:
        return []
    return [
        f"Storage: every node streams from its own {tier.name}, which must hold the whole data set,"
        f" {format_quantity(size, 'B')}, but holds only {format_quantity(room, 'B')}, {_too_much(size / room)};"
        f' storage.access = "cooperative" spreads it over {_many(size / room)} nodes or more.'
    ]


def _local_wall(prediction: "Breakdown") -> list[str]:
    experiment, storage = prediction.experiment, prediction.experiment.storage
    if storage.access == "stream":
        return []
    from lib_dlhpc.prediction.storage.io import bytes_in_a_node, nodes_needed

    size = bytes_in_a_node(experiment)
    room = storage_tier(experiment.machine, storage.local).capacity
    if size <= room:
        return []
    part = "all of the data set" if storage.access == "stage" else "its part of the data set"
    needed = nodes_needed(experiment)
    remedy = (
        "" if storage.access == "stage" else f"; {format_plain(float(needed))} nodes are needed"
    )
    return [
        f"Storage: a node keeps {part}, {format_quantity(size, 'B')}, and {storage.local} holds"
        f" {format_quantity(room, 'B')}, {_too_much(size / room)}{remedy}."
    ]


def _cache_wall(prediction: "Breakdown") -> list[str]:
    experiment = prediction.experiment
    kept = min(experiment.storage.cache, data_set_bytes(experiment))
    room = experiment.machine.host_memory
    if kept <= room:
        return []
    return [
        f"Memory: a node's cache keeps {format_quantity(kept, 'B')} of samples, and its host has"
        f" {format_quantity(room, 'B')}, {_too_much(kept / room)}."
    ]


def _input_wall(prediction: "Breakdown") -> list[str]:
    stall, step = prediction.input_stall, prediction.step_time
    if stall <= STARVING * step:
        return []
    from lib_dlhpc.prediction.storage.io import reading

    experiment = prediction.experiment
    found = reading(experiment)
    causes = prediction.terms  # input does not come behind a checkpoint
    hidden = sum(causes[name] for name in causes if name not in ("input stall", "checkpoint"))
    if experiment.strategy.local_steps > 1:  # most steps have no exchange to hide it behind
        hidden -= prediction.exposed_communication
    wanted = experiment.global_batch / hidden
    return [
        f"Input: {stall / step:.0%} of each step waits for data: {found.why}."
        f" {format_plain(float(found.rate))} samples/s arrive, while the devices could train"
        f" {format_plain(float(wanted))}; {_fed_by(experiment, found.limit, wanted / found.rates[found.limit])}."
    ]


def _fed_by(experiment: Experiment, limit: str, factor: float) -> str:
    """Return in words what would lift a limit of input far enough."""
    storage = experiment.storage
    if limit == "readers":
        return f"{_many(storage.workers * factor)} readers per device are needed"
    if limit == "prefetch":
        return f"{_many(storage.prefetch * factor)} batches ahead are needed"
    if limit == "metadata servers":
        return "packed files need no metadata operations; a store over the nodes keeps its metadata in memory"
    where = "a copy in each node" if storage.access != "stage" else "a cache"
    return f"{where}, or {format_plain(float(factor))}-fold compression, would be enough"


def _copy_wall(prediction: "Breakdown") -> list[str]:
    experiment = prediction.experiment
    needed, room = saving(experiment).host_copy, experiment.machine.host_memory
    if not experiment.run.checkpoint_interval or needed <= room:
        return []
    alone = experiment.run.checkpoint_writers == "first" and experiment.strategy.nodes > 1
    remedy = (
        "let all nodes write their parts"
        if alone
        else 'run.checkpoint = "synchronous" needs no such copy, and with more nodes each one holds less state'
    )
    return [
        f"Memory: a host keeps {format_quantity(needed, 'B')} of state until it is written, and has"
        f" {format_quantity(room, 'B')}, {_too_much(needed / room)}; {remedy}."
    ]


def _lost_wall(prediction: "Breakdown") -> list[str]:
    experiment = prediction.experiment
    machine, storage = experiment.machine, experiment.storage
    if not experiment.run.checkpoint_interval or math.isinf(machine.node_mtbf):
        return []
    lost = 1 - machine.local_survival
    if storage_tier(machine, storage.tier).scope != "node" or not lost:
        return []
    return [
        f"Checkpoints: they are stored only on {storage.tier} of the nodes, and {lost:.0%} of failures destroy it."
        " The run then starts over, which the expected time does not include. Write to a shared tier;"
        ' run.checkpoint = "multilevel" keeps the nodes\' own as the first level.'
    ]


def _too_much(factor: float) -> str:
    """Return by how much a limit is exceeded: in percent, or as a factor."""
    return (
        f"{factor - 1:.0%} too much"
        if factor < 10
        else f"{format_plain(float(factor))} times too much"
    )


def _many(number: float) -> str:
    return format_plain(math.ceil(number))


_STOPPING = (*(_offload_wall, _server_wall, _storage_wall, _local_wall), *(_cache_wall, _copy_wall))
