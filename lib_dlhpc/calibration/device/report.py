"""The machine of a device as commented TOML, as lines with its curves, or as JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lib_dlhpc.calibration.imported_machine import ImportedMachine
from lib_dlhpc.calibration.imported_report import as_lines as origin_lines
from lib_dlhpc.calibration.imported_report import commented
from lib_dlhpc.calibration.messages import curve
from lib_dlhpc.spec.units import count, format_quantity

SHOWN = 6  # points of a curve in a line


def as_toml(found: ImportedMachine, raw: Mapping[str, Any]) -> str:
    """Return the [machine] of an experiment, with curves and notes in its head and an origin after each number."""
    where = f"{count(raw['ranks'], 'rank')} on {raw['kind']}, {count(raw['threads'], 'thread')} each, {raw['title']}"
    head = [
        f"Measured by `dlhpc calibrate --device {raw['kind']}` on {found.table['measured']['date']}: {where}.",
        "These numbers replace those of the machine that an experiment names. After each: its 90% interval, how.",
        *curves(raw),
        *found.notes,
    ]
    return commented(found, head)


def as_lines(found: ImportedMachine, raw: Mapping[str, Any]) -> list[str]:
    """Return a line for each number and each curve, and the notes."""
    return [*origin_lines(found), "", *curves(raw), *found.notes]


def as_dict(found: ImportedMachine, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the machine, origins, notes and raw results, in SI units."""
    shown = {"machine": dict(found.table), "origins": dict(found.origins)}
    return shown | {"notes": list(found.notes), "raw": dict(raw)}


def curves(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each curve: the rate of products by edge, of sums and of exchanges by bytes."""
    for what in dict.fromkeys(each["what"] for each in raw["points"]):
        sizes, took = curve(raw, what)
        product = what.startswith("gemm")
        chosen = sorted(set(np.linspace(0, len(sizes) - 1, SHOWN).round().astype(int).tolist()))
        cells = []
        for at in chosen:
            rate = format_quantity(2 * sizes[at] ** 3 / took[at], "FLOP/s") if product else ""
            size = f"{sizes[at]:,}" if product else format_quantity(sizes[at], "B")
            cells.append(f"{size}: {rate or format_quantity(took[at], 's')}")
        yield f"{what:<16}" + "   ".join(cells)
