"""Sizes of a language model on some machines, planned once and stored.

Planning them in a notebook would push its kernel beyond 100 MB.

After a change of predictions, python -m lib_dlhpc.explore.energy_planning.planned_sizes writes sizes.csv anew; a test
compares.
"""

import csv
from functools import lru_cache
from pathlib import Path
from typing import Any

from lib_dlhpc.lifetime.files import replacing
from lib_dlhpc.planner import Size, sizes

MACHINES: dict[str, Any] = {
    "H100, 8 × 400 Gb/s": "h100-pod",
    "H100, 1 × 100 Gb/s": {"name": "h100-pod", "inter_node": "ethernet-100g", "nics": 1},
    "A100, 8 × 200 Gb/s": "selene",
}
FAST, SLOW, OLD = MACHINES
GPUS = (8, 64, 512)
STORED = Path(__file__).with_name("sizes.csv")


def family(machine: str, gpus: int) -> tuple[Size, ...]:
    """Return the sizes on a machine of MACHINES and one of GPUS, as stored; KeyError for others."""
    return _stored()[machine, gpus]


def planned_now(machine: str, gpus: int) -> tuple[Size, ...]:
    """Return the same, planned now."""
    return sizes(MACHINES[machine], gpus)


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
