"""LayerRate: how fast one kind of layer runs on a device, measured on the trainer's own layers.

A forward pass takes launch + FLOP / rate + bytes / bandwidth. A backward pass has parameters of its own, and
pays rate and bandwidth once for each gradient product; a layer that reads the sample needs no input gradient, and
of its backward launch pays the part of its other gradients.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.schema import number, read_table
from lib_dlhpc.spec.units import format_quantity

# Plausible range: a number beyond it is a mistake, not a measurement.
LONGEST = 60.0  # s of a launch
SLOWEST, FASTEST = 1e3, 1e18  # FLOP/s, B/s; inf: no cost


@dataclass(frozen=True)
class LayerRate:
    """Cost of a layer call, forward and backward; 0 s and infinite rates cost nothing."""

    launch: float = number("s", default=0.0, most=LONGEST)
    rate: float = number("FLOP/s", default=math.inf, least=SLOWEST)
    bandwidth: float = number("B/s", default=math.inf, least=SLOWEST)
    backward_launch: float = number("s", default=0.0, most=LONGEST)
    backward_rate: float = number("FLOP/s", default=math.inf, least=SLOWEST)
    backward_bandwidth: float = number("B/s", default=math.inf, least=SLOWEST)


def read_layer_rates(table: Any, path: str) -> dict[str, LayerRate]:
    """Build layer rates by kind of layer, or of update, from their tables; raises SpecError."""
    if not isinstance(table, Mapping):
        raise SpecError(f"{path} = {table!r}: expected a table for each kind of layer.")
    return {kind: _read_layer_rate(entry, f"{path}.{kind}") for kind, entry in table.items()}


def _read_layer_rate(table: Any, path: str) -> LayerRate:
    rate: LayerRate = read_table(LayerRate, table, path)
    for item in fields(LayerRate):
        value, unit = getattr(rate, item.name), item.metadata["unit"]
        if unit != "s" and FASTEST < value < math.inf:
            shown = [format_quantity(each, unit) for each in (value, SLOWEST, FASTEST)]
            raise SpecError(
                f"{path}.{item.name} = {shown[0]}: legal: from {shown[1]} to {shown[2]}, or inf: no cost."
            )
    return rate
