"""Fields of an experiment that contradict each other."""

from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.spec.calibration import check_calibration
from lib_dlhpc.spec.exchanged import check_expert_wire, check_lora, check_muon, check_wire
from lib_dlhpc.spec.machine import IN_NETWORK, IN_SWITCHES, Machine, storage_tier
from lib_dlhpc.spec.strategy import (
    ALLREDUCES,
    AUTO,
    SAME,
    SPLIT_FIELDS,
    Strategy,
    check_power_limit,
    check_split,
    check_update,
)

if TYPE_CHECKING:
    from lib_dlhpc.spec.experiment import Experiment


# What allows compressed gradients; to keep the largest, the optimizer must be linear in the gradient.
COMPRESSED = {
    "optimizer": ("sgd", "momentum"),
    "update": ("synchronous",),
    "precision": ("fp64", "fp32", "tf32"),
    "wire": (SAME,),
}


def check_consistency(experiment: "Experiment") -> None:
    """Raise SpecError where two fields contradict each other."""
    s, machine = experiment.strategy, experiment.machine
    if np.any(wrong := np.greater(s.nodes, machine.nodes)):
        raise SpecError(
            f"strategy.nodes = {np.max(s.nodes)}: {machine.name or 'the machine'} has {machine.nodes};"
            " use fewer, or raise machine.nodes.",
            wrong,
        )
    _check_switches(experiment)
    _check_domain(experiment)
    check_update(s)
    check_split(s)
    check_wire(s)
    check_expert_wire(s)
    check_lora(s)
    check_muon(s)
    check_power_limit(s, machine.device.idle_power, machine.device.busy_power)
    _check_compression(experiment)
    _check_outer(experiment)
    if s.offload_to != "host" and s.offload_to not in machine.storage:
        legal = ["host", *machine.storage]
        head, lead = (
            f"strategy.offload_to = {s.offload_to!r}:",
            f"legal on {machine.name or 'this machine'}:",
        )
        raise SpecError(listed(head, s.offload_to, legal, lead))
    if np.any(wrong := np.greater(s.nodes + experiment.servers, machine.nodes)):
        raise SpecError(
            f"strategy.servers = {np.max(s.servers)}: beside strategy.nodes = {np.max(s.nodes)} that makes"
            f" {np.max(s.nodes + experiment.servers)} nodes; {machine.name or 'the machine'} has"
            f" {machine.nodes}. Use fewer, or raise machine.nodes.",
            wrong,
        )
    _check_devices(experiment)
    check_calibration(experiment.calibration)
    measured = experiment.calibration.devices
    if np.any(np.greater(measured, machine.nodes * machine.devices_per_node)):
        raise SpecError(
            f"calibration.devices = {np.max(measured)}: {machine.name or 'the machine'} has"
            f" {machine.nodes} nodes of {machine.devices_per_node} devices."
        )
    if experiment.storage.tier:
        storage_tier(machine, experiment.storage.tier)
    _check_local(experiment)
    if np.any(experiment.run.checkpoint_interval) and not experiment.storage.tier:
        tiers = ", ".join(machine.storage) or f"{machine.name or 'this machine'} has none"
        raise SpecError(
            f"run.checkpoint_interval needs storage.tier: checkpoints are written there; legal: {tiers}."
        )


def allreduces_on(machine: Machine) -> list[str]:
    """Return the allreduces that a run on a machine may name, beside "auto": its switches must be able to do them."""
    can = IN_NETWORK[machine.in_network]
    return [*ALLREDUCES, *(name for name, needs in IN_SWITCHES.items() if needs <= can)]


def _check_switches(experiment: "Experiment") -> None:
    name, machine = experiment.strategy.allreduce, experiment.machine
    if machine.topology == "torus" and machine.in_network in ("sharp", "both"):
        raise SpecError(
            f"machine.in_network = {machine.in_network!r}: a torus has no switches between nodes; legal: none, nvls."
        )
    legal = allreduces_on(machine)
    if name == AUTO or name in legal:
        return
    enough = [each for each, adds in IN_NETWORK.items() if IN_SWITCHES[name] <= adds]
    raise SpecError(
        f"strategy.allreduce = {name!r}: it needs switches that add (machine.in_network = {' or '.join(enough)});"
        f" {machine.name or 'the machine'} has {machine.in_network}. Legal here: {', '.join([AUTO, *legal])}."
    )


def _check_domain(experiment: "Experiment") -> None:
    """Raise SpecError unless the nodes are a part of one domain, or whole domains, whose updates are synchronous."""
    s, machine = experiment.strategy, experiment.machine
    parted = np.greater(s.nodes, machine.domain) & (np.mod(s.nodes, machine.domain) != 0)
    if np.any(parted):
        nodes, domain = (
            int(np.max(np.where(parted, each, 0))) for each in (s.nodes, machine.domain)
        )
        part = max(divisor for divisor in _divisors(nodes) if divisor <= domain)
        raise SpecError(
            f"strategy.nodes = {nodes}: machine.domain = {domain} nodes are joined to one; legal: 1 to {domain}, or a"
            f" multiple of it. To use {part} nodes of each domain: machine.domain = {part}.",
            parted,
        )
    if np.any(np.greater(machine.domain, 1)) and s.update == "asynchronous":
        raise SpecError(
            f"machine.domain = {np.max(machine.domain)}: asynchronous updates are not modeled there; legal: 1."
        )


def _check_compression(experiment: "Experiment") -> None:
    """Raise SpecError where gradients cannot be compressed."""
    strategy, training = experiment.strategy, experiment.training
    if np.any(training.sparsity) and np.any(training.low_rank):
        raise SpecError(
            f"training.low_rank = {np.max(training.low_rank)}: with training.sparsity above 0 the legal value is 0."
        )
    for way in ("sparsity", "low_rank"):
        if not np.any(getattr(training, way)):
            continue
        shown = f"training.{way} = {np.max(getattr(training, way)):g}"
        for name, values in COMPRESSED.items():
            value = getattr(strategy, name)
            if value not in values and (name != "optimizer" or way == "sparsity"):
                raise SpecError(
                    f"{shown}: gradients can be compressed with strategy.{name} ="
                    f" {' or '.join(map(repr, values))}, not {value!r}; the legal value is 0."
                )
        for name in (*SPLIT_FIELDS, "lora"):
            value = getattr(strategy, name)
            if np.any(np.not_equal(value, getattr(Strategy, name))):
                raise SpecError(
                    f"{shown}: with strategy.{name} = {value!r} gradients are sent uncompressed; the legal value is 0."
                )


def _check_outer(experiment: "Experiment") -> None:
    """Raise SpecError for an outer optimizer without averages."""
    for name, none in (("outer_rate", 1.0), ("outer_momentum", 0.0)):
        value = getattr(experiment.training, name)
        if experiment.strategy.update != "local" and np.any(np.not_equal(value, none)):
            raise SpecError(
                f"training.{name} = {np.max(value):g}: applies only with strategy.update = 'local'; with"
                f" {experiment.strategy.update!r} the legal value is {none:g}."
            )


def _check_devices(experiment: "Experiment") -> None:
    """Raise SpecError unless the split makes the devices that the nodes have."""
    s, machine = experiment.strategy, experiment.machine
    if np.any(wrong := np.greater(s.devices_per_node, machine.devices_per_node)):
        raise SpecError(
            f"strategy.devices_per_node = {np.max(s.devices_per_node)}: a node of "
            f"{machine.name or 'the machine'} has {machine.devices_per_node}.",
            wrong,
        )
    split = np.where(np.equal(s.data, 0), 1, s.data) * s.replica
    devices = experiment.devices
    wrong = np.where(
        np.equal(s.data, 0), np.not_equal(np.mod(devices, split), 0), np.not_equal(split, devices)
    )
    if np.any(wrong):
        raise SpecError(
            f"strategy: data x tensor x pipeline x spatial x context = {s.data if np.all(s.data) else 'any'} x"
            f" {s.tensor} x {s.pipeline} x {s.spatial} x {s.context} does not make the {devices} devices:"
            f" strategy.nodes = {s.nodes} times {experiment.devices_per_node} per node.{_degrees(s, devices)}",
            wrong,
        )


def _degrees(s: Strategy, devices: Any) -> str:
    """Return which values are legal for a degree beside the others, in a sentence; "" for fields that are arrays."""
    if any(map(np.ndim, (devices, s.data, s.replica))):
        return ""
    names = (*["data"] * bool(s.data), "tensor", "pipeline", "spatial", "context")
    product = max(s.data, 1) * s.replica
    for name in names:
        value = getattr(s, name)
        left, over = divmod(int(devices), product // value)
        if not over and (value > 1 or name == "data"):
            legal = (left,) if s.data else _divisors(left)
            free = ", or 0: as many as there are" * (name == "data")
            return (
                f" Legal beside the others: strategy.{name} = {', '.join(map(str, legal))}{free}."
            )
    return f" Legal: tensor x pipeline x spatial x context that divide {devices}."


def _divisors(number: int) -> tuple[int, ...]:
    """Return all divisors of a number, from 1 on."""
    small = [index for index in range(1, isqrt(number) + 1) if number % index == 0]
    return tuple(sorted({*small, *(number // each for each in small)}))


def _check_local(experiment: "Experiment") -> None:
    """Raise SpecError unless a staged or distributed data set has a node-local tier."""
    storage, machine = experiment.storage, experiment.machine
    is_local = storage.access != "stream"
    if not storage.tier and is_local:
        raise SpecError(
            f'storage.access = "{storage.access}" needs storage.tier: the data set comes from there.'
        )
    legal = [name for name, tier in machine.storage.items() if tier.scope == "node"]
    if (is_local or storage.local) and storage.local not in legal:
        head = (
            f'storage.local = "{storage.local}": expected a tier in each node, for storage.access = "stage"'
            ' and "cooperative";'
        )
        lead = f"legal on {machine.name or 'this machine'}:"
        raise SpecError(listed(head, storage.local, legal or ["none"], lead))
    if storage.access == "cooperative" and np.any(
        np.greater(storage.replication, experiment.strategy.nodes)
    ):
        raise SpecError(
            f"storage.replication = {np.max(storage.replication)}: legal: at most strategy.nodes ="
            f" {np.min(experiment.strategy.nodes)}, a copy on each node."
        )
