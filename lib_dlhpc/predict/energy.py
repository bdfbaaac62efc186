"""Energy of one step: devices busy and waiting, the hosts with their network, and the cooling."""

from typing import Any

from lib_dlhpc.spec.experiment import Experiment


def step_energy(experiment: Experiment, compute: Any, step: Any) -> dict[str, Any]:
    """Return joules by cause for one step: `compute` s busy out of `step` s, on all devices.

    Power is modelled, not measured: busy and idle watts of the device, the rest of the node at
    node_power throughout, and (PUE - 1) on top for the building.
    """
    machine, devices = experiment.machine, experiment.devices
    terms = {
        "devices computing": devices * machine.device.busy_power * compute,
        "devices waiting": devices * machine.device.idle_power * (step - compute),
        "hosts and network": experiment.strategy.nodes * machine.node_power * step,
    }
    terms["cooling and conversion"] = (machine.pue - 1) * sum(terms.values())
    return terms


def facility_energy(device_hours: Any, watts: Any, pue: Any) -> Any:
    """Return joules from device-hours at constant power: the definition that publications use."""
    return device_hours * 3600 * watts * pue
