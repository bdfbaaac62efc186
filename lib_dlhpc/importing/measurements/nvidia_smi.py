"""nvidia-smi -q: which devices a node has, their memory and power limit.

Peak rates are the catalog's: they are at the boost clock, which the output has as the largest SM clock.
"""

import re

from lib_dlhpc.importing.measurements.devices import device_named
from lib_dlhpc.importing.measurements.measurement import File, Measurement, Note, Value

TOOL = "nvidia-smi"
ENTRY = re.compile(r"^(\s*)(\S[^:]*?)\s*:\s*(.*?)\s*$")
MEMORY = ("FB Memory Usage", "Total")
LIMITS = (
    ("GPU Power Readings", "Current Power Limit"),
    ("Power Readings", "Enforced Power Limit"),
    ("Power Readings", "Power Limit"),
)
CLOCK = ("Max Clocks", "SM")


def read(file: File) -> list[Measurement]:
    """Return devices of a node, memory and power limit; raises SpecError if its devices are not alike."""
    entries = _entries(file)
    found: list[Measurement] = []
    if attached := entries.get(("", "Attached GPUs")):
        line, count = attached[0]
        source = file.source(TOOL, line)
        found.append(Value("devices_per_node", int(file.number(count, line)), source))
    if products := entries.get(("", "Product Name")):
        for line, product in products:
            if product != products[0][1]:
                raise file.broken(
                    line, f"devices of a node must be alike; the first is {products[0][1]!r}"
                )
        line, product = products[0]
        found += device_named(product, file.source(TOOL, line))
    if memory := entries.get(MEMORY):
        line, size = memory[0]
        found.append(Value("device.memory", size, file.source(TOOL, line)))
    for key in LIMITS:
        if watts := [each for each in entries.get(key, []) if each[1].endswith(" W")]:
            line, limit = watts[0]
            found.append(Value("device.busy_power", limit, file.source(TOOL, line), "power limit"))
            break
    if clocks := entries.get(CLOCK):
        line, clock = clocks[0]
        found.append(
            Note(
                f"{file.source(TOOL, line)}: largest SM clock {clock}; peak rates are the catalog's."
            )
        )
    return found


def _entries(file: File) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """Return (line, value) of each entry by section and name; entries of a device itself have the section ""."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    section = ""
    for line, text in file.lines:
        entry = ENTRY.match(text)
        depth = len(text) - len(text.lstrip())
        if entry is None or text.startswith("GPU "):
            section = text.strip() if text.strip() and depth == 4 else "" if depth < 4 else section
        elif depth <= 4:
            section = ""
            found.setdefault(("", entry[2]), []).append((line, entry[3]))
        elif depth == 8:
            found.setdefault((section, entry[2]), []).append((line, entry[3]))
    return found
