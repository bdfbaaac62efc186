"""The page of the machines has a row for each, with the catalog's numbers."""

from collections import Counter
from pathlib import Path

import pytest

from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.machine import load_machine
from lib_dlhpc.spec.units import format_quantity

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "machines.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| `")]
NARROW = ("fp8", "nvfp4", "mxfp4")
CONFIDENCE = ("read", "memory", "computed", "estimate")


def sources(name):
    """Return how many numbers of a machine, its device and its links have each confidence."""
    machine = load_machine(name)
    tables = [catalog.read("machines", name), catalog.read("devices", machine.device.name)]
    for link in {machine.intra_node.name, machine.inter_node.name}:
        tables.append(catalog.read("links", link))
    counts = Counter(
        source["confidence"] for table in tables for source in table["sources"].values()
    )
    return " / ".join(str(counts[each]) for each in CONFIDENCE)


def row(name):
    m = load_machine(name)
    rates = {p: rate for p, rate in m.device.peak.items() if p not in NARROW}
    precision = max(rates, key=lambda p: (rates[p], p == "bf16"))
    cells = [
        f"`{name}`",
        f"{m.nodes:,} × {m.devices_per_node}",
        f"`{m.device.name}`",
        f"{format_quantity(rates[precision], 'FLOP/s')} {precision}",
        format_quantity(m.device.memory, "B"),
        format_quantity(m.intra_node.bandwidth, "B/s"),
        f"{m.nics} × {format_quantity(m.inter_node.bandwidth, 'B/s')}",
        sources(name),
    ]
    return "| " + " | ".join(cells) + " |"


@pytest.mark.parametrize("name", catalog.names("machines"))
def test_a_machine_has_its_row(name):
    assert row(name) in ROWS


def test_no_row_is_of_a_machine_that_is_gone():
    assert len(ROWS) == len(catalog.names("machines"))
