"""Energy of one step: busy and idle devices, hosts with NICs, and cooling."""

from typing import Any

from lib_dlhpc.spec.experiment import Experiment


def step_energy(
    experiment: Experiment, busy: Any, exposed: Any, step: Any, served: Any = 0.0
) -> dict[str, Any]:
    """Return joules by cause for one step of all devices.

    busy: s of computation; exposed: s of exposed communication; step: s in total. Power is modeled,
    not measured: busy and idle watts of the device, the rest of the node (host, NICs, fans) at
    constant node_power, and (PUE - 1) on top for the building. A parameter server has a node with one
    device, which computes `served` s for each device's gradient.
    """
    machine, devices, servers = experiment.machine, experiment.devices, experiment.servers
    device = machine.device
    idle = devices * device.idle_power
    terms = {
        "devices computing": devices * device.busy_power * busy,
        "devices waiting for the network": idle * exposed,
        "devices waiting for ranks and storage": idle * (step - busy - exposed),
        "hosts and NICs": experiment.strategy.nodes * machine.node_power * step,
    }
    if experiment.strategy.update == "asynchronous":
        dynamic = (device.busy_power - device.idle_power) * devices * served
        static = device.idle_power + machine.node_power
        terms["parameter servers"] = servers * (dynamic + static * step)
    terms["cooling and conversion"] = (machine.pue - 1) * sum(terms.values())
    return terms


def facility_energy(device_hours: Any, watts: Any, pue: Any) -> Any:
    """Return joules from device-hours at constant power, as publications define it."""
    return device_hours * 3600 * watts * pue
