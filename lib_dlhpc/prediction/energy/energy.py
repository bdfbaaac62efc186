"""Energy, emissions and price of a run: explanations, and how publications define energy (costs/energy.py)."""

from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.costs.power_limit import ARITHMETIC, EXCHANGE, MEMORY, clock
from lib_dlhpc.prediction.explanation import Explanation, source_of
from lib_dlhpc.spec.units import HOUR, format_energy
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown


def facility_energy(device_hours: Any, watts: Any, pue: Any) -> Any:
    """Return joules from device-hours at constant power, as publications define it."""
    return device_hours * HOUR * watts * pue


def explain_energy(p: "Breakdown") -> Explanation:
    """Return the explanation of the energy of a scalar prediction."""
    experiment, machine = p.experiment, p.experiment.machine
    device, strategy = machine.device, experiment.strategy
    total = sum(p.energy.values())
    shares = tuple(
        (name, f"{float(joules / total) if total else 0.0:.1%}", "computed")
        for name, joules in p.energy.items()
        if joules
    )
    levels = (
        ("limited by arithmetic", ARITHMETIC),
        ("limited by memory", MEMORY),
        ("in an exchange", EXCHANGE),
    )
    limit = float(strategy.power_limit)
    clock_ = float(clock(limit or np.inf, float(device.busy_power), float(device.idle_power)))
    slowed = "Zeus (NSDI 2023): law of costs/power_limit.py, fitted to two GPUs"
    return Explanation(
        "energy to train (modeled)",
        format_energy(float(p.energy_to_train)),
        "(devices × W × s of each term + nodes × (node W + switch W) × step + storage) × PUE, times the steps;"
        " parameter servers count as nodes with one device each",
        (
            ("busy power", show(device.busy_power, "W"), source_of(p, "device", "busy_power")),
            ("idle power", show(device.idle_power, "W"), source_of(p, "device", "idle_power")),
            *((f"of what lies between, {name}", f"{x:.0%}", "estimate") for name, x in levels),
            *[("power limit", show(limit, "W"), "strategy.power_limit")] * bool(limit),
            *[("clock of arithmetic", f"{clock_:.1%}", slowed)] * bool(limit),
            *(
                (name, show(getattr(machine, key), "W"), source_of(p, "machine", key))
                for name, key in (
                    ("rest of a node", "node_power"),
                    ("switches, a node's share", "switch_power"),
                )
            ),
            ("PUE", f"{machine.pue:g}", source_of(p, "machine", "pue")),
            *shares,
        ),
        "definition; Strubell et al. 2019 for PUE",
        "A pass draws the power of whatever limits its layers, launches draw idle power; ranks that wait in"
        " an exchange poll; hosts, NICs and switches draw constant power. Storage counts only where its tier"
        " states its power.",
    )


def explain_carbon(p: "Breakdown") -> Explanation:
    """Return the explanation of the emissions of a scalar prediction."""
    intensity = float(p.experiment.machine.carbon_intensity)
    return Explanation(
        "carbon",
        f"{show(1000 * float(p.carbon), 'g')} CO2e",
        "energy × carbon intensity of the grid",
        (
            ("energy", format_energy(float(p.energy_to_train)), "computed"),
            (
                "carbon intensity",
                f"{intensity:g} g/kWh",
                source_of(p, "machine", "carbon_intensity"),
            ),
        ),
        "definition; Patterson et al. 2021, arXiv 2104.10350",
        "The mean over a year of the grid where the machine is, whatever contract the site has; emissions from making"
        " the machine are not counted.",
    )
