"""How good is the law at a batch that it has not seen? Each is left out in turn, and predicted from the others.

Batches at the ends of what was measured are refused, so they are not predicted. Beside it what one would do without a
law: the epochs of the nearest batch that was measured, and the same epochs for every batch.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.convergence.epochs import answer
from lib_dlhpc.convergence.workloads import HALF, Workload, target_of


class HeldOut(NamedTuple):
    """One batch left out: median epochs, their prediction, and the fraction of its runs within the 90% interval."""

    workload: str
    target: float
    batch: float
    measured: float
    predicted: float
    low: float
    high: float
    covered: float
    nearest: float
    constant: float

    def error(self, by: str = "predicted") -> float:
        """Return |predicted - measured| / measured; by: predicted, nearest or constant."""
        return abs(float(getattr(self, by)) - self.measured) / self.measured


def held_out(work: Workload, targets: Iterable[float] = ()) -> list[HeldOut]:
    """Return each batch that at least half of the runs met a target with, left out of the fit and predicted."""
    return [row for target in targets or work.targets for row in _left_out(work, float(target))]


def _left_out(work: Workload, target: float) -> list[HeldOut]:
    whole = target_of(work, target)
    met = whole.batches[whole.met >= HALF]
    middles = {b: _median(whole.runs.high[whole.runs.batch == b]) for b in met}
    rows = []
    for batch in met[1:-1]:
        others = tuple(run for run in work.runs if run["batch"] != batch)
        epochs, low, high = answer(target_of(replace(work, runs=others), target), batch)
        if np.isnan(epochs):
            continue
        arrived = whole.runs.high[whole.runs.batch == batch]
        covered = np.mean((arrived >= low - 1e-9) & (arrived <= high + 1e-9))
        known = [b for b in met if b != batch]
        nearest = min(known, key=lambda b: abs(np.log(b / batch)))
        numbers: list[Any] = [batch, middles[batch], epochs, low, high, covered]
        numbers += [middles[nearest], _median(np.array([middles[b] for b in known]))]
        rows.append(HeldOut(work.name, target, *map(float, numbers)))
    return rows


def _median(values: Any) -> float:
    """Return the lower median, an epoch of a run; a run that never arrived is later than all."""
    return float(np.sort(values)[(len(values) - 1) // 2])
