"""plan(experiment): exact predictions of combinations, in the order of their lower bounds, until none can be better."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import length
from lib_dlhpc.errors import SpecError
from lib_dlhpc.planner.candidates import UNFIT, Candidates, candidates
from lib_dlhpc.planner.result import Choice, Plan, value
from lib_dlhpc.planner.space import SAME
from lib_dlhpc.prediction import ledger, predict
from lib_dlhpc.prediction.elementwise import holds_arrays
from lib_dlhpc.prediction.step import compute_scale
from lib_dlhpc.scale_out import HERE, Place
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.planning import overridden

BEST = 11  # the best and the ten next


def plan(
    experiment: Experiment,
    objective: str | Sequence[str] | None = None,
    limit: Mapping[str, float | str] | None = None,
    choose: Mapping[str, Any] | None = None,
    most: int | None = None,
    best: int = BEST,
    progress: Callable[[int, int], None] | None = None,
    where: Place = HERE,
) -> Plan:
    """Return the best layouts of a run on its devices, with its global batch, as its [plan] asks.

    What is given overrides [plan], limits and axes one by one. objective: time (s to train), energy (J to train), cost
    (device-hours), or several: then the first orders the search, and the front is of all that were predicted. limit:
    the most of each, or memory (B of the fullest device). choose: for a field of the strategy its values, or bounds
    of the default ones (space.py), such as {"least": 2, "most": 8}. most: predictions; if the search ends before it
    has proved the best, the plan has its gap to the bound. best: how many of the best are to be proved. progress:
    called before each with how many were tried, and of how many; what it raises ends the search. where: the bounds of
    combinations are found in chunks, here or elsewhere (scale_out/). Raises SpecError, also where nothing fits, and
    LostError where workers are lost.
    """
    asked = overridden(
        experiment.plan, objectives=objective, limits=limit, axes=choose, predictions=most
    )
    if holds_arrays(experiment) or experiment.strategy.update != "synchronous":
        raise SpecError("A plan is of one experiment with synchronous updates, without arrays.")
    if best < 1:
        raise SpecError(f"best = {best}: legal: 1 and more.")
    base = replace(_with_scale(experiment), plan=asked)
    found = _Search(base, candidates(base, where))
    found.run(best, progress or (lambda tried, of: None))
    return found.plan()


def _with_scale(experiment: Experiment) -> Experiment:
    """Return the experiment with a compute scale in place of its measured rate, which is of one layout."""
    measured = experiment.calibration
    if not measured.rate:
        return experiment
    scale = float(compute_scale(experiment))
    scaled = replace(measured, rate=0.0, devices=1, batch=0, compute_scale=scale)
    return replace(experiment, calibration=scaled)


class _Search:
    def __init__(self, base: Experiment, found: Candidates) -> None:
        self.base, self.found, self.wanted = base, found, base.plan.objectives
        self.limits = {name: most for name, most in vars(base.plan.limits).items() if most}
        self.left_out = Counter(found.left_out)
        self.least = self._least(self.wanted[0])
        self.kinds = self._kinds()
        kinds = range(self.kinds.max(initial=0) + 1)
        self.above = np.ones(len(kinds))  # the least price over its bound, by kind
        self.waiting = [self._in_order(kind) for kind in kinds]
        self.done = [0 for _ in kinds]  # of those, from the first on
        self.ranked: list[Choice] = []
        self.predicted = 0

    def _kinds(self) -> NDArray[np.int64]:
        """Return the kind of each combination; what the bound leaves out is much the same for all of a kind."""
        c = self.found.columns("zero", "pipeline")
        kinds: NDArray[np.int64] = c["zero"] * 2 + (c["pipeline"] > 1)
        return kinds

    def _in_order(self, kind: int) -> NDArray[np.intp]:
        """Return the rows of a kind, the least bound first; of equal ones, the first."""
        rows = np.flatnonzero(self.kinds == kind)
        return rows[np.argsort(self.least[rows], kind="stable")]

    def _heads(self) -> list[tuple[int, int]]:
        """Return the next row of each kind, and the kind."""
        return [
            (int(rows[done]), kind)
            for kind, (rows, done) in enumerate(zip(self.waiting, self.done, strict=True))
            if done < len(rows)
        ]

    def _least(self, objective: str) -> Any:
        """Return a lower bound of an objective for each combination."""
        experiment, found = self.base, self.found
        nodes: Any = experiment.strategy.nodes
        if "nodes" in found.axes:
            nodes = found.columns("nodes")["nodes"]
        devices = nodes * experiment.devices_per_node
        seconds = found.step * float(length.steps(experiment))
        if objective == "time":
            return seconds
        if objective == "cost":
            return seconds * devices / 3600
        machine, idle = experiment.machine, experiment.machine.device.idle_power
        above = found.joules * float(length.steps(experiment))
        standing = seconds * (devices * idle + nodes * machine.node_power)
        return (standing + devices * above) * machine.pue

    def run(self, best: int, progress: Callable[[int, int], None]) -> None:
        """Predict combinations until no bound is below the last of the best, or enough are predicted.

        Next is the one whose bound, times the least price over its bound of its kind so far, is least.
        """
        most, unfit = self.base.plan.predictions, self.found.left_out[UNFIT]
        for tried in range(len(self.found)):
            last = self._last(best)
            heads = [head for head in self._heads() if self.least[head[0]] <= last]
            if not heads or self.predicted >= most:
                return
            progress(unfit + tried, self.found.legal)
            row, kind = min(
                heads, key=lambda head: (self.least[head[0]] * self.above[head[1]], head)
            )
            self.done[kind] += 1
            self._try(row)

    def _last(self, best: int) -> float:
        if len(self.wanted) > 1 or len(self.ranked) < best:
            return np.inf
        return value(self.ranked[best - 1].prediction, self.wanted[0])

    def _try(self, row: int) -> None:
        changes = self.found.changes(row)
        try:
            one = self.base.set(changes)
            if one.strategy.is_split:
                terms = ledger.peak(one).terms
                if sum(terms.values()) > one.machine.device.memory:
                    self.left_out[
                        f"does not fit: most by {max(terms, key=lambda term: terms[term])}"
                    ] += 1
                    return
            prediction = predict(one)
        except SpecError as error:
            self.left_out[f"not legal: {_short(error)}"] += 1
            return
        self._learn(row, value(prediction, self.wanted[0]))
        if not prediction.fits:
            self.left_out["does not fit"] += 1
            return
        for name, most in self.limits.items():
            if value(prediction, name) > most:
                self.left_out[f"over the limit of {name}"] += 1
                return
        self.ranked.append(Choice(changes, prediction))
        self.ranked.sort(key=lambda choice: value(choice.prediction, self.wanted[0]))

    def _learn(self, row: int, price: float) -> None:
        kind, ratio = self.kinds[row], price / self.least[row] if self.least[row] else np.inf
        known = self.above[kind] > 1
        self.above[kind] = max(1.0, min(ratio, self.above[kind]) if known else ratio)
        self.predicted += 1

    def plan(self) -> Plan:
        """Return what was found; raises SpecError where nothing was."""
        if not self.ranked:
            unfit = {r: n for r, n in self.left_out.items() if r.startswith(("does not", "over"))}
            most = Counter(unfit or self.left_out).most_common(3)
            reasons = "; ".join(f"{count:,} {reason}" for reason, count in most)
            raise SpecError(f"No layout was found for this run: {reasons}.")
        least = min((float(self.least[row]) for row, _ in self._heads()), default=np.inf)
        same = self.left_out.pop(SAME, 0)
        return Plan(
            self.base,
            self.wanted,
            tuple(self.ranked),
            self.left_out,
            self.found.legal,
            self.predicted,
            len(self.found) - sum(self.done),
            least,
            same,
        )


def _short(error: SpecError) -> str:
    """Return what an error names, without the numbers that differ from one combination to the next."""
    return str(error).partition(" = ")[0]
