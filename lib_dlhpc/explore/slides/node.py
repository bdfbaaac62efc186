"""A node of a machine of the catalog: its devices with their memory, the links between them, the way out."""

from lib_dlhpc.explore.slides.diagram import BLUE, GREEN, ORANGE, Diagram, Node, Shape, linked
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.spec.units import format_quantity

MOST = 8  # devices that are drawn


def node_of(name: str) -> Diagram:
    """Return the node of a machine, with its devices, bandwidths and NICs as the catalog has them."""
    machine = load_machine(name)
    device, count = machine.device, int(machine.devices_per_node)
    size, memory = (
        format_quantity(float(value), unit)
        for value, unit in ((device.memory, "B"), (device.memory_bandwidth, "B/s"))
    )
    shown = min(count, MOST)
    wide = 0.96 / shown
    nodes = {
        f"{k}": Node(0.02 + wide * (k + 0.5), 0.3, f"GPU {k}", BLUE, wide * 0.9, 0.16)
        for k in range(shown)
    }
    inside, outside = (
        format_quantity(float(link.bandwidth), "B/s")
        for link in (machine.intra_node, machine.inter_node)
    )
    nics = int(machine.nics)
    within = f"within the node: {inside} for each device"
    nodes["in"] = Node(0.5, 0.62, within, GREEN, 0.9, 0.14)
    way_out = f"out of the node: {nics} NIC{'s' * (nics > 1)} of {outside}"
    nodes["out"] = Node(0.5, 0.92, way_out, ORANGE, 0.9, 0.14)
    links = [*((f"{k}", "in") for k in range(shown)), ("in", "out")]
    head = f"a node of {name}: {count} devices, each with {size} of memory at {memory}"
    drawn = linked(nodes, links, [Shape(0.02, 0, 0.96, 0.16, head)], both=True)
    return drawn._replace(words=f"{head}; {within}; {way_out}")
