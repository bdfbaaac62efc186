"""What would help the most: how much shorter a step gets when one part of the machine is twice as good."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.step import breakdown

# The part, where it stands ("*": every entry, "tier": the one in use), and what "twice as good" multiplies it by.
PARTS = {
    "compute rate": ("machine.device.peak.*", 2.0),
    "memory bandwidth": ("machine.device.memory_bandwidth", 2.0),
    "kernel launch": ("machine.device.launch", 0.5),
    "network bandwidth": ("machine.inter_node.bandwidth", 2.0),
    "network latency": ("machine.inter_node.latency", 0.5),
    "links inside the node": ("machine.intra_node.bandwidth", 2.0),
    "storage bandwidth": ("machine.storage.tier.bandwidth", 2.0),
    "metadata rate": ("machine.storage.tier.metadata_rate", 2.0),
}
# Those of readers, where the experiment says how many there are or how far ahead they may be.
READERS = {
    "readers per device": ("storage.workers", 2.0),
    "batches ahead": ("storage.prefetch", 2.0),
    "storage latency": ("machine.storage.tier.*latency", 0.5),
}


def sensitivity(prediction: Breakdown) -> dict[str, float]:
    """Return, for each part of the machine, the fraction by which a step shortens when it is twice as good.

    A calibrated compute time is kept and scaled, so that a measured rate does not pin what is asked about.
    """
    experiment, base = prediction.experiment, float(prediction.step_time)
    storage = experiment.storage
    tier = storage.tier if storage.access == "stream" else storage.local
    readers = READERS if tier and (storage.workers or storage.prefetch) else {}
    shorter = {}
    for part, (place, factor) in {**PARTS, **readers}.items():
        if "storage" in place and not tier:
            continue
        keys = [tier if key == "tier" else key for key in place.split(".")]
        step = breakdown(_scaled(experiment, keys, factor), prediction.compute_scale).step_time
        shorter[part] = 1 - float(step) / base
    return shorter


def _scaled(noun: Any, keys: list[str], factor: float) -> Any:
    """Return `noun` with the numbers at `keys` multiplied by `factor`; "*" before a key: all that end so."""
    if not keys:
        return noun * factor
    head, *rest = keys
    if isinstance(noun, Mapping):
        return {
            key: _scaled(value, rest, factor) if head in ("*", key) else value
            for key, value in noun.items()
        }
    names = [
        name for name in vars(noun) if name == head or (head[0] == "*" and name.endswith(head[1:]))
    ]
    return replace(noun, **{name: _scaled(getattr(noun, name), rest, factor) for name in names})
