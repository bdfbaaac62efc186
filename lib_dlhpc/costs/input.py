"""Input: how long the storage tier needs for a batch, in bytes and in metadata operations."""

from typing import Any

import numpy as np

from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import storage_tier


def read_operations(experiment: Experiment) -> Any:
    """Return the metadata operations of a whole run: files, each stat, opened and closed, each epoch."""
    return experiment.dataset.files * experiment.storage.operations_per_file * experiment.run.epochs


def input_time(experiment: Experiment) -> Any:
    """Return the seconds that storage needs to deliver one global batch: bytes or metadata, the slower.

    A shared tier serves the whole batch; a tier in each node serves the node's part.
    """
    if not experiment.storage.tier:
        return 0.0
    tier, dataset = storage_tier(experiment.machine, experiment.storage.tier), experiment.dataset
    samples = experiment.global_batch / _servers(experiment)
    files = np.minimum(dataset.files / dataset.samples, 1.0)
    operations = samples * files * experiment.storage.operations_per_file
    bandwidth = reached(experiment, tier.bandwidth, experiment.strategy.nodes)
    return np.maximum(samples * dataset.sample_bytes / bandwidth, operations / tier.metadata_rate)


def reached(experiment: Experiment, bandwidth: Any, nodes: Any) -> Any:
    """Return the B/s that `nodes` nodes reach of a tier's `bandwidth`: a shared tier is behind their NICs."""
    machine = experiment.machine
    if storage_tier(machine, experiment.storage.tier).scope == "node":
        return bandwidth
    link = machine.inter_node
    return np.minimum(bandwidth, nodes * machine.nics * link.bandwidth * link.efficiency)


def start_time(experiment: Experiment) -> Any:
    """Return the seconds before the first step in which every device lists every directory and file name."""
    if not experiment.storage.tier:
        return 0.0
    tier = storage_tier(experiment.machine, experiment.storage.tier)
    return (
        experiment.devices
        * experiment.dataset.directories
        / _servers(experiment)
        / tier.metadata_rate
    )


def _servers(experiment: Experiment) -> Any:
    tier = storage_tier(experiment.machine, experiment.storage.tier)
    return experiment.strategy.nodes if tier.scope == "node" else 1
