"""Joules of a step by cause: what devices draw in each term of its time, hosts, switches, storage and cooling.

A prediction and a simulation both give their seconds, so equal seconds are equal joules. The power of a pass is that of
what limits its layers, see power_limit.py: launches draw idle power. A device in an exchange, or waiting for others in
one, polls; it draws idle power in a pipeline bubble, an input stall and a checkpoint. Communication that overlaps
computation adds nothing: kernels that compute draw what a device may draw.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lib_dlhpc.costs.power_limit import drawn
from lib_dlhpc.program import BoundShares
from lib_dlhpc.spec.experiment import Experiment

POLLED = ("waiting for the slowest", "exposed communication")
IDLE = ("pipeline bubble", "input stall", "checkpoint")


def device_watts(experiment: Experiment, mixes: tuple[BoundShares, BoundShares]) -> dict[str, Any]:
    """Return the W of a device in each term of a step; mixes: what limits forward and backward."""
    device, strategy = experiment.machine.device, experiment.strategy
    limit = strategy.power_limit
    polled = drawn(device, limit, 0.0, exchange=1.0)
    served = strategy.update == "asynchronous"  # updates are of the servers; devices wait for them
    return {
        "forward": drawn(device, limit, *mixes[0]),
        "backward": drawn(device, limit, *mixes[1]),
        "update": polled if served else drawn(device, limit, 0.0, 1.0),
        **dict.fromkeys(POLLED, polled),
        **dict.fromkeys(IDLE, drawn(device, limit, 0.0)),
    }


def standing_watts(experiment: Experiment) -> dict[str, Any]:
    """Return the W of what draws constant power as long as a run lasts: hosts with NICs, switches, storage.

    Nodes of parameter servers are not among them. Of a shared storage tier the run is charged the fraction of the
    machine's nodes that it uses.
    """
    machine, nodes = experiment.machine, experiment.strategy.nodes
    storage = experiment.storage
    tiers = [machine.storage[name] for name in {storage.tier, storage.local} if name]
    share = {"shared": nodes / machine.nodes, "node": nodes}
    return {
        "hosts and NICs": nodes * machine.node_power,
        "switches": nodes * machine.switch_power,
        "storage": sum((share[tier.scope] * tier.power for tier in tiers), 0.0),
    }


def step_energy(
    experiment: Experiment, seconds: Mapping[str, Any], watts: Mapping[str, Any], served: Any = 0.0
) -> dict[str, Any]:
    """Return the joules of a step of all devices by cause, cooling included; their sum is the whole.

    seconds, watts: of each term, the mean of the devices. served: s that a parameter server computes for each device's
    gradient.
    """
    machine, devices, servers = experiment.machine, experiment.devices, experiment.servers
    step = sum(seconds.values())
    joules = {f"devices: {term}": devices * watts[term] * seconds[term] for term in seconds}
    joules |= {cause: watt * step for cause, watt in standing_watts(experiment).items()}
    if experiment.strategy.update == "asynchronous":
        device, limit = machine.device, experiment.strategy.power_limit
        idle, busy = (drawn(device, limit, 0.0, fraction) for fraction in (0.0, 1.0))
        standing = idle + machine.node_power + machine.switch_power
        joules["parameter servers"] = servers * ((busy - idle) * devices * served + standing * step)
    joules["cooling and conversion"] = (machine.pue - 1) * sum(joules.values())
    return joules


def idle_watts(experiment: Experiment) -> Any:
    """Return the W of all that a run occupies while its devices wait, cooling included."""
    machine = experiment.machine
    servers = experiment.servers * (machine.node_power + machine.switch_power)
    devices = (experiment.devices + experiment.servers) * machine.device.idle_power
    return machine.pue * (devices + servers + sum(standing_watts(experiment).values()))


def carbon(experiment: Experiment, joules: Any) -> Any:
    """Return kg of CO2 equivalents of electricity, from the mean intensity of the machine's grid; NaN if unknown."""
    known = np.where(np.greater(experiment.machine.carbon_intensity, 0), 1.0, np.nan)
    return (known * experiment.machine.carbon_intensity * joules / 3.6e9)[()]
