"""Energy of one step: busy and idle devices, hosts with NICs, and cooling."""

from typing import TYPE_CHECKING, Any

from lib_dlhpc.prediction.explanation import Explanation, source_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown


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


def explain_energy(p: "Breakdown") -> Explanation:
    """Return the explanation of the energy of a scalar prediction."""
    device = p.experiment.machine.device
    total = sum(p.energy.values())
    shares = tuple(
        (name, f"{float(joules / total) if total else 0.0:.1%}", "computed")
        for name, joules in p.energy.items()
    )
    return Explanation(
        "energy to train (modeled)",
        show(float(p.energy_to_train), "J"),
        "(devices × (busy W × compute + idle W × waiting) + nodes × node W × step) × PUE, times the steps;"
        " parameter servers count as nodes with a device each",
        (
            ("busy power", show(device.busy_power, "W"), source_of(p, "device", "busy_power")),
            ("idle power", show(device.idle_power, "W"), source_of(p, "device", "idle_power")),
            (
                "rest of a node",
                show(p.experiment.machine.node_power, "W"),
                source_of(p, "machine", "node_power"),
            ),
            ("PUE", f"{p.experiment.machine.pue:g}", source_of(p, "machine", "pue")),
            *shares,
        ),
        "definition; Strubell et al. 2019 for PUE",
        "Two power levels per device, idle power during all waits: ranks that busy-wait draw more. Switches"
        " outside the nodes are not counted.",
    )
