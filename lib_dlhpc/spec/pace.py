"""Pace: how fast one kind of layer runs on a device, measured on the trainer's own layers.

Forward a layer takes launch + FLOP / rate + bytes / bandwidth, and backward as much, with numbers of its own,
for each of the two products: a layer that reads only the sample needs but one of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.schema import number, read_table
from lib_dlhpc.spec.units import format_quantity

# What a layer can have: beyond it, a number is a mistake and no measurement.
LONGEST = 60.0  # s of a launch
SLOWEST, FASTEST = 1e3, 1e18  # FLOP/s, B/s; what is faster costs nothing, and is inf


@dataclass(frozen=True)
class Pace:
    """What a call of a layer takes, forward and backward; 0 s and unlimited rates are no cost."""

    launch: float = number("s", default=0.0, most=LONGEST)
    rate: float = number("FLOP/s", default=math.inf, least=SLOWEST)
    bandwidth: float = number("B/s", default=math.inf, least=SLOWEST)
    backward_launch: float = number("s", default=0.0, most=LONGEST)
    backward_rate: float = number("FLOP/s", default=math.inf, least=SLOWEST)
    backward_bandwidth: float = number("B/s", default=math.inf, least=SLOWEST)


def read_paces(table: Any, path: str) -> dict[str, Pace]:
    """Build paces by kind of layer, or of update, from their tables; raises SpecError."""
    if not isinstance(table, Mapping):
        raise SpecError(f"{path} = {table!r}: expected a table for each kind of layer.")
    return {kind: _read_pace(entry, f"{path}.{kind}") for kind, entry in table.items()}


def _read_pace(table: Any, path: str) -> Pace:
    pace: Pace = read_table(Pace, table, path)
    for item in fields(Pace):
        value, unit = getattr(pace, item.name), item.metadata["unit"]
        if unit != "s" and FASTEST < value < math.inf:
            shown = [format_quantity(each, unit) for each in (value, SLOWEST, FASTEST)]
            raise SpecError(
                f"{path}.{item.name} = {shown[0]}: legal: from {shown[1]} to {shown[2]}, or inf: no cost."
            )
    return pace
