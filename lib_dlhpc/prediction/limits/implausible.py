"""Rates, sizes and latencies that no machine has: most often a number whose unit was left out."""

from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity

LEAST_MEMORY = 1e6  # B; the smallest processors that train networks have more
LEAST_RATE = 1e5  # B/s; a modem's is of this order
MOST_LATENCY = 1.0  # s; a satellite link has less


def implausible(experiment: Experiment) -> list[str]:
    """Return a sentence for each number of a scalar experiment's machine that no machine has."""
    machine = experiment.machine
    links = {name: getattr(machine, name) for name in ("intra_node", "inter_node", "host_link")}
    device = machine.device
    wrong = [
        ("device.memory", device.memory, "B", device.memory < LEAST_MEMORY),
        (
            "device.memory_bandwidth",
            device.memory_bandwidth,
            "B/s",
            device.memory_bandwidth < LEAST_RATE,
        ),
        *(
            (f"{name}.bandwidth", link.bandwidth, "B/s", link.bandwidth < LEAST_RATE)
            for name, link in links.items()
        ),
        *(
            (f"{name}.latency", link.latency, "s", link.latency > MOST_LATENCY)
            for name, link in links.items()
        ),
    ]
    return [
        f"machine.{field} = {format_quantity(value, unit)}: no machine has that; a number without a unit is in {unit}."
        for field, value, unit, is_wrong in wrong
        if is_wrong
    ]
