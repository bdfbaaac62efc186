"""Checkpoints: what the storage tier takes, in bytes."""

from typing import Any

from lib_dlhpc.costs.input import reached
from lib_dlhpc.predict.memory import checkpoint_bytes
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import storage_tier


def checkpoint_time(experiment: Experiment) -> Any:
    """Return the seconds to write one checkpoint, all of it by the first node, training stopped."""
    if not experiment.storage.tier:
        return 0.0
    tier, strategy = storage_tier(experiment.machine, experiment.storage.tier), experiment.strategy
    size = checkpoint_bytes(experiment.model, strategy.precision, strategy.optimizer)
    return size / reached(experiment, tier.write_bandwidth, nodes=1)
