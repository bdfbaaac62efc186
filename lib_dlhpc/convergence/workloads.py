"""Measured workloads: a network, its data and its optimizer, with runs at several batches (catalog/workloads).

Two kinds of measurement, batch by batch. `met`: for each target the epoch after which each run first met it, nan if it
never did. `accuracy`: of each run after `epochs`, whose schedule of learning rates ends there. Both are intervals in
which a run met a target: a run that never met one is known to have trained to the last target that it met.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from lib_dlhpc.convergence.accuracy_costs import TABLE, measured
from lib_dlhpc.convergence.critical_batch import Array, Law, Runs, fit
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import Experiment, read_model
from lib_dlhpc.spec.training import Training

HALF = 0.5  # of the runs of a batch must meet a target


@dataclass(frozen=True)
class Workload:
    """One file of the catalog."""

    name: str
    title: str
    dataset: str
    optimizer: str
    metric: str
    rate: str  # the rule of the learning rate, in words
    base_rate: float  # 0: not checked
    scaled: bool | None  # linear scaling by training.base_batch; None: not checked
    model: Any  # a catalog name or a table; "": not of the catalog
    source: str
    targets: Array  # at which epochs were counted; empty: any, of final accuracies
    runs: tuple[Mapping[str, Any], ...]
    precisions: tuple[str, ...] = ("fp32",)
    # Change of each run's accuracy by a setting (accuracy_costs.py).
    costs: tuple[Mapping[str, Any], ...] = ()

    def fits(self, experiment: Experiment) -> bool:
        """Whether the workload is that of an experiment: network, data, optimizer and, where set, learning rate."""
        e, training = experiment, experiment.training
        if (self.dataset, self.optimizer) != (e.dataset.name, e.strategy.optimizer):
            return False
        if self.scaled is not None and self.scaled != bool(np.any(training.base_batch)):
            return False
        own = _options(self.name)
        return own is not None and own == (e.model.family, e.model.options)

    def other_rate(self, experiment: Experiment) -> str:
        """Return what was measured, if the experiment sets another learning rate; "" if it sets none, or the same."""
        rate = experiment.training.rate
        same = rate in (Training.rate, self.base_rate) or not self.base_rate
        return "" if same else f"{self.rate}, not training.rate = {rate:g}"

    def target(self, wanted: float) -> float:
        """Return the target that answers for `wanted`: itself, or the next higher one at which epochs were counted."""
        if not len(self.targets):
            return wanted
        higher = self.targets[self.targets >= wanted - 1e-9]
        return float(higher[0]) if len(higher) else np.inf


@dataclass(frozen=True)
class Target:
    """The runs of a workload towards one target, batch by batch, and the fitted law."""

    runs: Runs
    batches: Array
    met: Array  # fraction of the runs of a batch that met the target
    counts: Array  # runs of a batch
    budget: Array  # fewest epochs of a schedule that met the target, by batch; nan where epochs were counted
    resolution: Array  # epochs between two evaluations, by batch
    law: Law | None  # None: schedules only, or no run arrived
    measured: Array  # epochs and their interval at each batch; shape (3, batches)


def names() -> tuple[str, ...]:
    """Return the measured workloads."""
    return catalog.names("workloads")


@cache
def read(name: str) -> Workload:
    """Return a workload of the catalog; raises SpecError."""
    table = catalog.read("workloads", name)
    return workload_of(table, name)


def workload_of(table: Mapping[str, Any], name: str = "") -> Workload:
    """Return a workload from its table."""
    targets = sorted({float(key) for row in table["batches"] for key in row.get("met", {})})
    costs = table.get("costs", ())
    return Workload(
        name=name,
        title=table["title"],
        dataset=table["dataset"],
        optimizer=table["optimizer"],
        metric=table["metric"],
        rate=table["rate"],
        base_rate=table.get("base_rate", 0.0),
        scaled=table.get("scaled"),
        model=table.get("model", ""),
        source=table.get("sources", {}).get("batches", {}).get("from", ""),
        targets=np.array(targets),
        runs=tuple({"resolution": table.get("resolution", 0.0), **row} for row in table["batches"]),
        precisions=tuple(table.get("precisions", ("fp32",))),
        costs=measured() if costs == TABLE.stem else tuple(costs),
    )


def find(experiment: Experiment) -> Workload | None:
    """Return the measured workload of an experiment, or None."""
    return next((work for name in names() if (work := read(name)).fits(experiment)), None)


@cache
def towards(name: str, target: float) -> Target:
    """Return the runs of a catalog workload towards a target, and their law."""
    return target_of(read(name), target)


def target_of(work: Workload, target: float) -> Target:
    """Return the runs of a workload towards a target, one that `Workload.target` gives, and the law fitted to them."""
    rows = [run for row in work.runs for run in _intervals(row, target)]
    batch, low, high, budget, resolution = np.array(rows, dtype=float).T
    batches, place = np.unique(batch, return_inverse=True)
    counts = np.bincount(place).astype(float)
    met = np.bincount(place, weights=np.isfinite(high)) / counts
    fewest = np.full(len(batches), np.inf)
    np.minimum.at(fewest, place, np.where(np.isfinite(high) & np.isfinite(budget), budget, np.inf))
    counted = np.isnan(budget)
    if not counted.any():
        # A longer schedule may meet what a shorter one has missed.
        met = np.isfinite(fewest).astype(float)
    runs = Runs(batch, low, high)
    law = fit(runs) if counted.any() and np.isfinite(high).any() else None
    every = np.zeros(len(batches))
    every[place] = resolution
    own = [law.informed(b, runs) if law else (b, b, b) for b in batches]
    return Target(runs, batches, met, counts, fewest, every, law, np.array(own).T)


def _intervals(row: Mapping[str, Any], target: float) -> list[tuple[float, ...]]:
    """Return (batch, low, high, schedule, resolution) of each run of a row; high is inf if it did not arrive."""
    batch, every = row["batch"], row["resolution"]
    if "accuracy" in row:
        epochs, met = row["epochs"], np.median(row["accuracy"]) >= target
        low, high = (0.0, epochs) if met else (epochs, np.inf)
        return [(batch, low, high, epochs, every)] * len(row["accuracy"])
    met = row["met"].get(f"{target:g}")
    if met is None:
        return []
    every_run = np.array(list(row["met"].values()), dtype=float)
    alive = np.nanmax(np.column_stack([every_run.T, np.zeros(len(met))]), axis=1)
    return [
        (batch, max(e - every, 0.0), e, np.nan, every)
        if e == e
        else (batch, last, np.inf, np.nan, every)
        for e, last in zip(met, alive, strict=True)
    ]


@cache
def _options(name: str) -> tuple[str, Any] | None:
    model = read(name).model
    if not model:
        return None
    try:
        found = read_model(model)
    except SpecError as error:
        raise SpecError(f"workload {name}: {error}") from None
    return found.family, found.options
