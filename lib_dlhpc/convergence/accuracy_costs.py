"""What a setting costs in accuracy: rows of measurements, and which of them answer for a value and a number of workers.

A row has a setting, its value, and the change of accuracy of each of its runs; where they were stated, the batch, the
workers, the outer optimizer and the epochs over which a sparsity rose. Own measurements are in catalog/measured, run by
run.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.convergence.critical_batch import NORMAL
from lib_dlhpc.spec.catalog import ROOT

TABLE = ROOT / "measured" / "accuracy_costs.csv"
SPARSITY = "training.sparsity"
REFERENCE = SPARSITY, 0.0  # nothing left out
LINEAR = ("training.low_rank",)  # n workers compress as one does (Vogels et al. 2019, lemma 3)
BATCH = 128  # of all runs of the table
WARM_UP = 4.0  # epochs over which its sparsity rises
NO_OUTER = 1.0, 0.0

Row = Mapping[str, Any]


class CostRun(NamedTuple):
    """One run: the setting that differs, its value, the workers, the outer optimizer, the test accuracy."""

    setting: str
    value: Any
    workers: int
    outer_rate: float
    outer_momentum: float
    seed: int
    accuracy: float


@cache
def stored() -> tuple[CostRun, ...]:
    """Return the shipped runs; a sparsity of 0 is the reference."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return tuple(
            CostRun(
                row["setting"],
                _value(row["value"]),
                int(row["workers"]),
                float(row["outer_rate"]),
                float(row["outer_momentum"]),
                int(row["seed"]),
                float(row["accuracy"]),
            )
            for row in csv.DictReader(file)
        )


@cache
def measured() -> tuple[Row, ...]:
    """Return a row for each method of the table: its runs minus those without a method, seed by seed."""
    runs = defaultdict[tuple[Any, ...], dict[int, float]](dict)
    for run in stored():
        runs[run[:5]][run.seed] = run.accuracy
    whole = runs.pop((*REFERENCE, 1, *NO_OUTER))
    return tuple(
        {
            "setting": setting,
            "value": value,
            "outer": tuple(outer),
            "batch": BATCH,
            **({} if setting in LINEAR else {"workers": workers}),
            **({"warm_up": WARM_UP} if setting == SPARSITY else {}),
            "change": [each[seed] - whole[seed] for seed in sorted(whole)],
            "from": f"measured at a batch of {BATCH}{_by(setting, workers)}",
        }
        for (setting, value, workers, *outer), each in runs.items()
    )


def around(rows: Iterable[Row], value: Any, workers: int) -> list[Row]:
    """Return the rows next to a value and a number of workers: at it, or on both sides; empty: beyond the rows.

    Both sides, since a stronger setting may cost less, and more workers too.
    """
    rows, found = list(rows), list[Row]()
    for side in _sides([row["value"] for row in rows], value):
        own = [row for row in rows if row["value"] == side]
        if all("workers" in row for row in own):
            near = _sides([row["workers"] for row in own], workers)
            own = [row for row in own if row["workers"] in near]
        if not own:
            return []
        found += own
    return found


def upper(changes: Iterable[float]) -> float:
    """Return the upper end of 90% of what runs lost, in the mean; a gain is not credited."""
    loss = -np.array([*changes])
    wide = NORMAL * loss.std(ddof=1) / np.sqrt(len(loss)) if len(loss) > 1 else 0.0
    return max(0.0, float(loss.mean() + wide))


def _sides(known: Iterable[Any], value: Any) -> list[Any]:
    """Return the known values next to one: itself, or those on both sides; empty: it is beyond them."""
    known = {*known}
    if value in known:
        return [value]
    if isinstance(value, str):
        return []
    below, above = [k for k in known if k < value], [k for k in known if k > value]
    return [max(below), min(above)] if below and above else []


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _by(setting: str, workers: int) -> str:
    by = "" if setting in LINEAR else f" by {workers} worker{'s' * (workers > 1)}"
    return by + f", rising over {WARM_UP:g} epochs" * (setting == SPARSITY)
