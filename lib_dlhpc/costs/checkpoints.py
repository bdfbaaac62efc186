"""Checkpoints: who writes how many bytes, how long training stalls, what a restart takes."""

from typing import Any

import numpy as np

from lib_dlhpc.costs.input import listing_time, loading_time, reached
from lib_dlhpc.costs.model_state import model_state_bytes, state_each
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.errors import SpecError
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import StorageTier, storage_tier
from lib_dlhpc.spec.model import Model

HASH_RATE = 10e9  # B/s that one process hashes: XXH3 of 128 bits, as quick as a core reads memory


@dataclass(frozen=True)
class CheckpointCost:
    """What one checkpoint costs; bytes and seconds, every value may be an array.

    Training stalls for `blocked`. Then the state is written behind it for `background`, and until that
    is done a failure falls back on the checkpoint before. `survived` failures in one leave the nodes' own
    copies intact; they need `local_restart`, all others `restart`.
    """

    size: Any  # B of the whole state
    written: Any  # B that go to the tier
    blocked: Any
    background: Any = 0.0
    host_copy: Any = 0.0  # B of a node's memory that hold the state while it is written
    restart: Any = 0.0
    survived: Any = 0.0
    local_restart: Any = 0.0

    def standstill(self, interval: Any) -> Any:
        """Return the s that training stalls for each checkpoint, `interval` s of training apart.

        A write that is not done when the next checkpoint is due is waited for.
        """
        return self.blocked + np.maximum(self.background - interval, 0.0)


@dataclass(frozen=True)
class Checks:
    """Silent errors and what finds them; seconds, every value may be an array.

    A silent error spoils the state and stops nothing. After each `every` s of training, and the
    checkpoint then, a check stalls training for `takes` and finds any error since the last one: it is
    perfect, which only recomputing the interval would be.
    """

    mtbf: Any  # s of training between two silent errors of all nodes together
    every: Any  # s of training, a multiple of the checkpoint interval
    takes: Any


def saving(experiment: Experiment) -> CheckpointCost:
    """Return what a checkpoint of this experiment costs, in the way that run.checkpoint names.

    synchronous: all stall until storage.tier has it. asynchronous: all stall for a copy to the
    memory of the host, from which it is written. multilevel: all stall until the storage.local of each
    node has its part, from which it is copied to storage.tier. incremental: all stall while everything
    is hashed and what has changed is written. Nothing without a tier. Who writes: all of it the first
    node, or each node and device its part. Raises SpecError where a tier is missing.

    What a write in the background takes from training (host memory, network) is not modeled.
    """
    way, devices = experiment.run.checkpoint, experiment.devices_per_node
    size = checkpoint_bytes(
        experiment.model, experiment.strategy.precision, experiment.strategy.optimizer
    )
    if not experiment.storage.tier:
        return CheckpointCost(size, 0.0, 0.0, restart=_restarted(experiment, 0.0))
    tier = storage_tier(experiment.machine, experiment.storage.tier)
    nodes = writers(experiment)
    node_part = size / nodes
    # One device has a whole network unless that is split; a part of it each, where all write.
    holders = np.minimum(experiment.strategy.holders, devices) if _first(experiment) else devices
    changed = experiment.run.changed if way == "incremental" else 1.0
    write = changed * size / write_rate(experiment, tier)
    # Samples that were copied to the nodes are taken as lost, unless what the nodes hold survives.
    model = experiment.model  # frozen weights are read, and never written
    frozen = (model.parameters - model.trained) * BYTES[experiment.strategy.precision]
    reading = (size + frozen) / _rate(experiment, tier, tier.bandwidth, nodes)
    restart = _restarted(experiment, loading_time(experiment) + reading)
    if way == "asynchronous":
        link = experiment.machine.host_link
        copy = node_part / holders / (link.bandwidth * link.efficiency) + link.latency
        return CheckpointCost(size, size, copy, write, node_part, restart)
    if way == "multilevel":
        local = _local(experiment)
        return CheckpointCost(
            size,
            size,
            node_part / written_at(local),
            write,
            restart=restart,
            survived=experiment.machine.local_survival,
            local_restart=_restarted(experiment, node_part / local.bandwidth),
        )
    hashing = node_part / holders / HASH_RATE if way == "incremental" else 0.0
    return CheckpointCost(size, changed * size, hashing + write, restart=restart)


def checkpoint_bytes(model: Model, precision: str, optimizer: str) -> Any:
    """Return the bytes of a checkpoint: trained weights, master weights and optimizer state, no gradients.

    14 a parameter for Adam in mixed precision: 2 + 4 + 8.
    """
    size = BYTES[precision]
    state = state_each(model, optimizer)
    whole = model_state_bytes(model.trained, precision, optimizer, numbers=state)
    return whole - model.trained * size


def _first(experiment: Experiment) -> bool:
    return experiment.run.checkpoint_writers == "first"


def writers(experiment: Experiment) -> Any:
    """Return how many nodes write."""
    return 1 if _first(experiment) else experiment.strategy.nodes


def write_rate(experiment: Experiment, tier: StorageTier) -> Any:
    """Return the B/s at which a checkpoint gets into the tier: its own, or that of the NICs on the way."""
    return _rate(experiment, tier, written_at(tier), writers(experiment))


def _rate(experiment: Experiment, tier: StorageTier, bandwidth: Any, nodes: Any) -> Any:
    """Return the B/s of `nodes` nodes together: a shared tier is behind their NICs, others are as many."""
    return reached(experiment, bandwidth, nodes) * (nodes if tier.scope == "node" else 1)


def written_at(tier: StorageTier) -> Any:
    """Return the B/s at which a tier takes what is written: as it reads, unless a write bandwidth is given."""
    return np.where(np.isinf(tier.write_bandwidth), tier.bandwidth, tier.write_bandwidth)[()]


def _restarted(experiment: Experiment, loading: Any) -> Any:
    """Return the s from a failure until training resumes: restart, listing of files, `loading` what is lost."""
    return experiment.machine.restart_time + listing_time(experiment) + loading


def _local(experiment: Experiment) -> StorageTier:
    """Return the tier in each node that takes the first level."""
    if not experiment.storage.local:
        raise SpecError(
            'run.checkpoint = "multilevel" needs storage.local: a tier in each node takes the first level.'
        )
    return storage_tier(experiment.machine, experiment.storage.local)
