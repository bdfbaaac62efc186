"""plan(experiment): exact predictions of combinations, in the order of their lower bounds, until none can be better."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib_dlhpc.costs import length
from lib_dlhpc.errors import SpecError, suggest
from lib_dlhpc.planner.bound import bound
from lib_dlhpc.planner.result import OBJECTIVES, Choice, Plan, value
from lib_dlhpc.planner.space import SAME, Space, space
from lib_dlhpc.prediction import ledger, predict
from lib_dlhpc.prediction.elementwise import holds_arrays
from lib_dlhpc.prediction.what_if import alone
from lib_dlhpc.spec.experiment import Experiment

BEST = 11  # the best and the ten next
MOST = 2000  # predictions


def plan(
    experiment: Experiment,
    objective: str | Sequence[str] = "time",
    limit: Mapping[str, float] | None = None,
    choose: Mapping[str, Sequence[Any]] | None = None,
    most: int = MOST,
    best: int = BEST,
) -> Plan:
    """Return the best layouts of a run on its devices, with its global batch.

    objective: time (s to train), energy (J to train), cost (device-hours), or several: then the first orders the
    search, and the front is of all that were predicted. limit: the most of each. choose: the values of fields of the
    strategy, in place of the default ones (space.py). most: predictions; if the search ends before it has proved the
    best, the plan has its gap to the bound. best: how many of the best are to be proved.
    Raises SpecError, also where nothing fits.
    """
    wanted = (objective,) if isinstance(objective, str) else tuple(objective)
    limits = dict(limit or {})
    for name in (*wanted, *limits):
        if name not in OBJECTIVES:
            raise SpecError(
                f"{name!r}: legal: {', '.join(OBJECTIVES)}{suggest(name, list(OBJECTIVES))}"
            )
    if not wanted:
        raise SpecError(f"objective: expected at least one of {', '.join(OBJECTIVES)}.")
    if holds_arrays(experiment) or experiment.strategy.update != "synchronous":
        raise SpecError("A plan is of one experiment with synchronous updates, without arrays.")
    base = alone(experiment)
    if best < 1:
        raise SpecError(f"best = {best}: legal: 1 and more.")
    found = _Search(base, space(base, choose or {}), wanted, limits)
    found.run(most, best)
    return found.plan()


class _Search:
    def __init__(
        self,
        base: Experiment,
        combinations: Space,
        wanted: tuple[str, ...],
        limits: dict[str, float],
    ) -> None:
        self.base, self.space, self.wanted, self.limits = base, combinations, wanted, limits
        self.left_out = Counter(combinations.left_out)
        self.bounds = bound(base, combinations)
        self.order = np.argsort(self._least(wanted[0]), kind="stable")
        self.least = self._least(wanted[0])[self.order]
        self.ranked: list[Choice] = []
        self.predicted = self.tried = 0

    def _least(self, objective: str) -> Any:
        """Return a lower bound of an objective for each combination."""
        experiment = self.base
        nodes = self.space.columns.get("nodes", experiment.strategy.nodes)
        devices = nodes * experiment.devices_per_node
        seconds = self.bounds.step * float(length.steps(experiment))
        if objective == "time":
            return seconds
        if objective == "cost":
            return seconds * devices / 3600
        machine = experiment.machine
        watts = devices * min(machine.device.idle_power, machine.device.busy_power)
        return seconds * (watts + nodes * machine.node_power) * machine.pue

    def run(self, most: int, best: int) -> None:
        """Predict combinations until the bound of the next is above the last of the best, or `most` are predicted."""
        room = float(self.base.machine.device.memory)
        fits = self.bounds.state[self.order] <= room
        while self.tried < len(self.order) and self.predicted < most:
            if len(self.wanted) == 1 and self.least[self.tried] > self._last(best):
                return
            if fits[self.tried]:
                self._try(int(self.order[self.tried]))
            else:
                self.left_out["does not fit: the state alone"] += 1
            self.tried += 1

    def _last(self, best: int) -> float:
        if len(self.ranked) < best:
            return np.inf
        return value(self.ranked[best - 1].prediction, self.wanted[0])

    def _try(self, row: int) -> None:
        changes = self.space.changes(row)
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
        self.predicted += 1
        if not prediction.fits:
            self.left_out["does not fit"] += 1
            return
        for name, most in self.limits.items():
            if value(prediction, name) > most:
                self.left_out[f"over the limit of {name}"] += 1
                return
        self.ranked.append(Choice(changes, prediction))
        self.ranked.sort(key=lambda choice: value(choice.prediction, self.wanted[0]))

    def plan(self) -> Plan:
        """Return what was found; raises SpecError where nothing was."""
        if not self.ranked:
            unfit = {r: n for r, n in self.left_out.items() if r.startswith(("does not", "over"))}
            most = Counter(unfit or self.left_out).most_common(3)
            reasons = "; ".join(f"{count:,} {reason}" for reason, count in most)
            raise SpecError(f"No layout was found for this run: {reasons}.")
        waiting = self.least[self.tried :]
        least = float(waiting[0]) if len(waiting) else np.inf
        same = self.left_out.pop(SAME, 0)
        return Plan(
            self.base,
            self.wanted,
            tuple(self.ranked),
            self.left_out,
            len(self.space),
            self.predicted,
            len(waiting),
            least,
            same,
        )


def _short(error: SpecError) -> str:
    """Return what an error names, without the numbers that differ from one combination to the next."""
    return str(error).partition(" = ")[0]
