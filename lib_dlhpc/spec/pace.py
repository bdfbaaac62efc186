"""Pace: how fast one kind of layer runs on a device, measured on the trainer's own layers.

Forward a layer takes launch + FLOP / rate + bytes / bandwidth, and backward as much, with numbers of its own,
for each of the two products: a layer that reads only the sample needs but one of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.schema import number, read_table


@dataclass(frozen=True)
class Pace:
    """What a call of a layer takes, forward and backward; 0 s and unlimited rates are no cost."""

    launch: float = number("s", default=0.0)
    rate: float = number("FLOP/s", default=math.inf, positive=True)
    bandwidth: float = number("B/s", default=math.inf, positive=True)
    backward_launch: float = number("s", default=0.0)
    backward_rate: float = number("FLOP/s", default=math.inf, positive=True)
    backward_bandwidth: float = number("B/s", default=math.inf, positive=True)


def read_paces(table: Any, path: str) -> dict[str, Pace]:
    """Build paces by kind of layer, or of update, from their tables; raises SpecError."""
    if not isinstance(table, Mapping):
        raise SpecError(f"{path} = {table!r}: expected a table for each kind of layer.")
    return {kind: read_table(Pace, entry, f"{path}.{kind}") for kind, entry in table.items()}
