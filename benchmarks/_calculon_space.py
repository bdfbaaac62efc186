"""One space of layouts that Calculon and a plan both express, and Calculon's search of it: the step of each.

GPT-3 on 1,024 A100: tensor, pipeline and data parallelism, sequence parallelism, microbatches, 1F1B plain and
interleaved, sharded optimizer or not, three ways to recompute. Stages are of equal length, as Calculon wants them.
planner_calculon.csv has the seconds of a step of each layout that fits by Calculon; how to ask again: planner.py.
"""

import csv
from pathlib import Path
from typing import Any

import _peer_calculon

from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner.search_space import space
from lib_dlhpc.spec.experiment import Experiment

STORED = Path(__file__).with_name("planner_calculon.csv")
CHOOSE = {"pipeline": [1, 2, 4, 8, 16], "schedule": ["1f1b", "interleaved"], "zero": [0, 1]}
FIELDS = (
    *("tensor", "pipeline", "sequence_parallel", "microbatches"),
    *("schedule", "chunks", "zero", "recompute"),
)
Layout = tuple[str, ...]


def experiment() -> Experiment:
    """Return the run."""
    strategy = {"nodes": 128, "tensor": 8, "batch": 12, "precision": "fp16", "optimizer": "adam"}
    return Experiment(model="gpt3-175b", machine="selene", strategy=strategy)


def layout_of(changes: dict[str, Any]) -> Layout:
    """Return the fields of a layout as text; changes: dotted fields."""
    return tuple(str(changes[f"strategy.{name}"]) for name in FIELDS)


def asked(run: Experiment, most: int | None = None) -> dict[Layout, float]:
    """Return Calculon's seconds of a step of each layout that fits by its memory; most: of the first layouts only."""
    layouts, found = space(run, CHOOSE), {}
    room = float(run.machine.device.memory) / 2**30
    for row in range(len(layouts))[:most]:
        changes = layouts.changes(row)
        try:
            found[layout_of(changes)] = _peer_calculon.step_time(run.set(changes), room=room)
        except SpecError:
            continue
    return found


def stored() -> dict[Layout, float]:
    """Return its answers as they are kept."""
    with STORED.open(newline="", encoding="utf-8") as file:
        return {tuple(row[:-1]): float(row[-1]) for row in list(csv.reader(file))[1:]}


def store(found: dict[Layout, float]) -> None:
    """Keep answers."""
    with STORED.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([*FIELDS, "seconds"])
        out.writerows([*layout, f"{seconds:.6g}"] for layout, seconds in found.items())
