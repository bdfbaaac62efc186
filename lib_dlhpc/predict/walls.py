"""The limits a run breaks: which, by how much, and what would bring it back."""

from typing import TYPE_CHECKING

from lib_dlhpc.spec.machine import storage_tier
from lib_dlhpc.spec.units import format_quantity

if TYPE_CHECKING:
    from lib_dlhpc.predict.breakdown import Breakdown


def walls_hit(prediction: "Breakdown") -> list[str]:
    """Return one sentence for each broken limit of a scalar experiment; an empty list if it can run."""
    return [*_memory_wall(prediction), *_storage_wall(prediction)]


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
    most = largest_batch(prediction)
    way_out = (
        f"the largest batch a device that fits is {most}"
        if most
        else "not even one sample fits: the model must be split, its state sharded, or kept out of core"
    )
    return [
        f"Memory: one device needs {format_quantity(total, 'B')} and has {format_quantity(capacity, 'B')},"
        f" {total / capacity - 1:.0%} too much; {way_out}."
    ]


def _storage_wall(prediction: "Breakdown") -> list[str]:
    experiment = prediction.experiment
    if not experiment.storage.tier:
        return []
    tier = storage_tier(experiment.machine, experiment.storage.tier)
    size = experiment.dataset.bytes
    if size <= tier.capacity:
        return []
    where = "each node" if tier.scope == "node" else "the whole system"
    return [
        f"Storage: the data set is {format_quantity(size, 'B')} and {tier.name} of {where} holds"
        f" {format_quantity(tier.capacity, 'B')}, {size / tier.capacity - 1:.0%} too much;"
        f" use another tier or spread the data over nodes."
    ]
