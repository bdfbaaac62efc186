"""hwloc's XML, as `lstopo --of xml` writes it: memory of a node, its network adapters and accelerators.

Versions 1 and 2 number kinds of OS devices, version 3 has bits. Sizes and counts, so no intervals; the speed of a
network is not in it.
"""

from xml.etree.ElementTree import Element

from lib_dlhpc.importing.measurements.devices import device_named
from lib_dlhpc.importing.measurements.measurement import File, Measurement, Note, Value
from lib_dlhpc.importing.measurements.xml_text import root_of
from lib_dlhpc.spec.units import count, format_quantity

TOOL = "hwloc"
INFINIBAND, INFINIBAND_BIT = 3, 32
ACCELERATORS = ("0302", "0380", "1200")  # PCI classes: 3D controller, other display, accelerator


def read(file: File) -> list[Measurement]:
    """Return memory, adapters and accelerators of a node; raises SpecError for broken XML."""
    root = root_of(file)
    source = file.source(TOOL, 1, file.text.count("\n"))
    objects: dict[str, list[Element]] = {}
    for each in root.iter("object"):
        objects.setdefault(each.get("type", ""), []).append(each)
    pci = objects.get("PCIDev", [])
    memory = sum(
        file.number(each.get("local_memory", "0"), 1, zero=True) for each in root.iter("object")
    )
    sockets = len(objects.get("Package", objects.get("Socket", [])))
    found: list[Measurement] = []
    if memory:
        found.append(Value("host_memory", format_quantity(memory, "B", 9), source))
    if adapters := sum(_is_adapter(each, root) for each in pci):
        found.append(Value("nics", adapters, source, "InfiniBand adapters"))
    if devices := sum(each.get("pci_type", "")[:4] in ACCELERATORS for each in pci):
        found.append(Value("devices_per_node", devices, source, "accelerators"))
    elif (model := root.find(".//info[@name='CPUModel']")) is not None:
        found += [
            *device_named(model.get("value", ""), source),
            Value("devices_per_node", sockets, source),
        ]
    shown = ", ".join(
        count(number, noun)
        for number, noun in (
            (sockets, "socket"),
            (len(objects.get("NUMANode", [])), "NUMA node"),
            (len(objects.get("Core", [])), "core"),
        )
    )
    return [*found, Note(f"{source}: {shown}.")]


def _is_adapter(pci: Element, root: Element) -> bool:
    kind = str(INFINIBAND_BIT if root.get("version", "").startswith("3") else INFINIBAND)
    return any(
        each.get("type") == "OSDev" and each.get("osdev_type") == kind
        for each in pci.iter("object")
    )
