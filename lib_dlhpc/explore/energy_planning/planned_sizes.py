"""Sizes of a language model on some machines, planned once and stored.

Compute time is calibrated by one measured rate of each machine's GPUs; a second one, not used, says how far off the
rates are. Planning the sizes in a notebook would push its kernel beyond 100 MB.

After a change of predictions, python -m lib_dlhpc.explore.energy_planning.planned_sizes writes sizes.csv anew; a test
compares.
"""

import csv
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.planner import LAYERS, Size, sizes
from lib_dlhpc.prediction.validation.validate import Row, validate

MACHINES: dict[str, dict[str, Any]] = {
    "H100, 8 × 400 Gb/s": {"name": "h100-pod"},
    "H100, 1 × 100 Gb/s": {"name": "h100-pod", "inter_node": "ethernet-100g", "nics": 1},
    "A100, 8 × 200 Gb/s": {"name": "selene"},
}
FAST, SLOW, OLD = MACHINES
GPUS = (8, 64, 512)
STORED = Path(__file__).with_name("sizes.csv")


class Measured(NamedTuple):
    """The measured rate that calibrates a machine, and the published row that is predicted from it; both in words."""

    start: str
    family: str
    test: str
    tested: str


NEMO = Measured(
    "NVIDIA's Llama 3.1 8B on 8 H100", "dgxc", "dgxc-nemotron4-15b-bf16-64", "Nemotron-4 15B on 64"
)
MEGATRON = Measured(
    "Narayanan's GPT 39B on 512 A100", "megatron", "megatron21-18b", "GPT 18B on 256"
)
MEASURED = dict(zip(MACHINES, (NEMO, NEMO, MEGATRON), strict=True))


def family(machine: str, gpus: int) -> tuple[Size, ...]:
    """Return the sizes on a machine of MACHINES and one of GPUS, as stored; KeyError for others."""
    return _stored()[machine, gpus]


def planned_now(machine: str, gpus: int, layers: Sequence[int] = LAYERS) -> tuple[Size, ...]:
    """Return the same, planned now; layers: of the sizes that are planned."""
    calibrated = predicted_row(MEASURED[machine]).experiment
    assert calibrated is not None
    device = {"dispatch": float(calibrated.machine.device.dispatch)}
    scale = float(calibrated.calibration.compute_scale)
    return sizes(MACHINES[machine] | {"device": device}, gpus, layers, scale)


@lru_cache
def predicted_row(measured: Measured) -> Row:
    """Return the published row that is predicted from a measured rate."""
    (row,) = validate([measured.family], only=[measured.test])
    return row


@lru_cache(maxsize=1)
def _stored() -> dict[tuple[str, int], tuple[Size, ...]]:
    found: dict[tuple[str, int], tuple[Size, ...]] = {}
    with STORED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = row.pop("machine"), int(row.pop("gpus"))
            kinds = Size.__annotations__
            own = Size(**{name: kinds[name](value) for name, value in row.items()})
            found[key] = (*found.get(key, ()), own)
    return found


def store() -> None:
    """Plan all sizes and store them."""
    with replacing(STORED) as path, path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("machine", "gpus", *Size._fields))
        for machine in MACHINES:
            for gpus in GPUS:
                for each in planned_now(machine, gpus):
                    lines.writerow((machine, gpus, *map(_written, each)))


def _written(value: object) -> str:
    """Return a value as it is stored: whole numbers and words as they are, others with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    store()
