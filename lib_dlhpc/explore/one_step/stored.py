"""Measure the example of the lesson on one step again: on a quiet machine, python -m lib_dlhpc.explore.one_step.stored

It writes catalog/measured/one_step.toml, the machine, and one_step.csv, the points that the lesson draws.
"""

import csv
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from lib_dlhpc.calibration.machine import Calibrated, fit_machine, measure_machine
from lib_dlhpc.calibration.machine_report import as_toml
from lib_dlhpc.calibration.programs import WORKER
from lib_dlhpc.explore.one_step.machines import LOADS, MACHINE, POINTS, SHIPPED, Raw
from lib_dlhpc.launch.mpi import run_to_end

SECONDS, RANKS = 60.0, 2
MOST = 9  # repeats of a point that are kept: the calmest
DRAWN = ("gemm float32", "gemm float64", "message", "sum", "copy")


def kept(raw: Raw) -> list[list[Any]]:
    """Return the lines of the file of points: a kind, a size and seconds of the calmest repeats."""
    loads = np.asarray(raw["others"], float)
    calmest = np.sort(np.argsort(loads, kind="stable")[:MOST])

    def line(what: str, size: int, values: Any) -> list[Any]:
        return [what, size, *(f"{value:.4g}" for value in np.asarray(values)[calmest])]

    head = ["what", "size", *(f"repeat {k + 1}" for k in range(len(calmest)))]
    points = [p for p in raw["points"] if p["what"] in DRAWN]
    return [
        head,
        line(LOADS, 0, loads),
        *(line(p["what"], p["size"], p["seconds"]) for p in points),
    ]


def nameless(found: Calibrated) -> Calibrated:
    """Return it with no more of where it was measured than the system and its cores."""
    measured = found.machine.measured
    assert measured is not None
    host = ", ".join(measured.host.split(", ")[:2])
    return replace(found, machine=replace(found.machine, measured=replace(measured, host=host)))


def main(seconds: float = SECONDS) -> None:
    """Measure, and write both files."""
    found = nameless(fit_machine(measure_machine(RANKS, seconds, run_to_end)))
    SHIPPED.joinpath(MACHINE).write_text(as_toml(found), encoding="utf-8")
    with open(SHIPPED / POINTS, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(kept(found.raw[WORKER]))
    print(as_toml(found))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
