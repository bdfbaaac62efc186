"""A calibrated machine in words and as columns, for notebooks (see results/)."""

from typing import TYPE_CHECKING

from lib_dlhpc.calibration.machine_report import NAMES
from lib_dlhpc.results import Columns, Summary, shown
from lib_dlhpc.spec.machine import field_of
from lib_dlhpc.spec.measured_machine import value_of
from lib_dlhpc.spec.units import count

if TYPE_CHECKING:
    from lib_dlhpc.calibration.machine import Calibrated

# Parameters of the short repr.
FACTS = {
    "device.peak.fp32": "fp32",
    "device.memory_bandwidth": "memory",
    "intra_node.latency": "message latency",
    "intra_node.bandwidth": "message bandwidth",
}


def summary(of: "Calibrated") -> Summary:
    """Return the measured parameters with their 90% intervals."""
    found = columns(of)
    rows = [
        (NAMES.get(name, name), shown(value, unit), f"{shown(low, unit)} to {shown(high, unit)}")
        for name, value, low, high, unit in zip(*found.values(), strict=True)
    ]
    values = dict(
        zip(found["parameter"], zip(found["value"], found["unit"], strict=True), strict=True)
    )
    facts = {word: shown(*values[name]) for name, word in FACTS.items() if name in values}
    measured = of.machine.measured
    on = f"{count(measured.ranks, 'rank')}, {measured.date}" if measured else ""
    return Summary(f"this machine, {on}", facts, ("parameter", "value", "90% interval"), rows)


def columns(of: "Calibrated") -> Columns:
    """Return a row for each measured parameter: its value, its 90% interval, and its SI unit."""
    intervals = of.machine.measured.intervals if of.machine.measured else {}
    rows = [
        (name, float(value_of(of.machine, name)), *map(float, ends), field_of(name)["unit"])
        for name, ends in intervals.items()
    ]
    names = ("parameter", "value", "low", "high", "unit")
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}
