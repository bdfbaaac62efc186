"""Candidates of a plan: the combinations that are legal and may fit, with their bounds, found in chunks.

A combination is a number, so that no list of all of them is made. Of many candidates, those with the least bounds are
held, at 24 B each; of the others it is known how many there are, and their least bound.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs import step_count
from lib_dlhpc.planner.bound import bound
from lib_dlhpc.planner.search_space import (
    Columns,
    Space,
    axes_of,
    columns_at,
    combinations,
    space,
    values_of,
)
from lib_dlhpc.planner.training_runs import alone
from lib_dlhpc.scale_out import Arrays, Place, Work, results
from lib_dlhpc.scale_out.work import experiment_of, part, text_of
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import HOUR

SIZE = 2**20  # combinations of a chunk
HELD = 2**22  # candidates of all runs of a plan
UNFIT = ("does not fit: the state alone", "does not fit: state and activations")


@dataclass(frozen=True)
class Candidates:
    """Combinations by their numbers, with lower bounds of a step (s) and of the energy above idle power (J).

    legal: how many are legal, whether they fit or not. left_out: of all combinations, by reason. others: candidates
    that are not held, of which none has less of the first objective than `beyond`.
    """

    experiment: Experiment
    axes: Mapping[str, Sequence[Any]]
    numbers: NDArray[np.int64]
    step: NDArray[np.float64]
    joules: NDArray[np.float64]
    legal: int
    left_out: Counter[str]
    others: int = 0
    beyond: float = inf

    def __len__(self) -> int:
        """Return the number of candidates that are held."""
        return len(self.numbers)

    def columns(self, *names: str) -> Columns:
        """Return some axes, in each candidate."""
        return {name: values_of(self.axes, name, self.numbers) for name in names}

    def least(self, objective: str) -> NDArray[np.float64]:
        """Return a lower bound of an objective for each candidate."""
        experiment, steps = self.experiment, float(step_count.steps(alone(self.experiment)))
        nodes: Any = experiment.strategy.nodes
        if "nodes" in self.axes:
            nodes = self.columns("nodes")["nodes"]
        devices = nodes * experiment.devices_per_node
        seconds: NDArray[np.float64] = self.step * steps
        if objective == "time":
            return seconds
        if objective == "cost":
            return seconds * devices / HOUR
        machine, idle = experiment.machine, experiment.machine.device.idle_power
        standing = seconds * (devices * idle + nodes * machine.node_power)
        least: NDArray[np.float64] = (standing + devices * self.joules * steps) * machine.pue
        return least

    def refine(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Raise the bounds of some candidates to those of their stages; return which of them may fit."""
        some = Space(self.combinations(rows), Counter(), self.numbers[rows], self.axes)
        found = bound(self.experiment, some, cuts=True)
        self.step[rows] = np.maximum(self.step[rows], found.step)
        return found.memory <= float(self.experiment.machine.device.memory)

    def only(self, rows: NDArray[np.intp]) -> "Candidates":
        """Return some of them."""
        each = self.numbers[rows], self.step[rows], self.joules[rows]
        return Candidates(self.experiment, self.axes, *each, legal=0, left_out=Counter())

    def combinations(self, rows: NDArray[np.intp]) -> Columns:
        """Return some candidates with all their fields, as columns."""
        return columns_at(self.experiment, self.axes, self.numbers[rows])


def candidates(runs: Sequence[Experiment], where: Place, held: int = HELD) -> list[Candidates]:
    """Return the candidates of the [plan] of each scalar experiment, of which at most `held` are held in all.

    Chunks of all of them are one piece of work. A folder of `where` stays. Raises SpecError, LostError as `results`.
    """
    axes = [axes_of(run) for run in runs]
    totals = [combinations(axis) for axis in axes]
    arguments = {
        "experiments": [text_of(run) for run in runs],
        "combinations": totals,
        "size": SIZE,
    }
    many = [-(-total // SIZE) for total in totals]
    work = Work("lib_dlhpc.planner.candidates:chunk", arguments, sum(many))
    chunks = results(work, where, keep=True)
    found = [
        _merged(run, axis, islice(chunks, number), held // len(runs))
        for run, axis, number in zip(runs, axes, many, strict=True)
    ]
    next(chunks, None)  # workers end
    return found


def _merged(
    experiment: Experiment, axes: Mapping[str, Sequence[Any]], found: Iterable[Arrays], held: int
) -> Candidates:
    left_out, none = Counter[str](), (np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    all_of_them = Candidates(experiment, axes, *none, legal=0, left_out=left_out)
    parts: list[Arrays] = []
    for each in found:
        for reason, many in zip(each["reasons"].tolist(), each["counts"].tolist(), strict=True):
            left_out[reason] += many
        all_of_them = replace(all_of_them, legal=all_of_them.legal + int(each["legal"]))
        parts.append(each)
        if sum(len(part["numbers"]) for part in parts) > held:
            all_of_them, parts = _first(_with(all_of_them, parts), held), []
    return _first(_with(all_of_them, parts), held)


def _with(these: Candidates, parts: list[Arrays]) -> Candidates:
    """Return candidates with those of further chunks."""

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(these, name), *(part[name] for part in parts)])

    return replace(these, numbers=joined("numbers"), step=joined("step"), joules=joined("joules"))


def _first(these: Candidates, held: int) -> Candidates:
    """Return the candidates with the `held` least bounds of the first objective; of equal ones, the first."""
    if len(these) <= held:
        return these
    least = these.least(these.experiment.plan.objectives[0])
    kept = np.sort(least_of(least, held))
    rest = np.ones(len(these), bool)
    rest[kept] = False
    return replace(
        these,
        numbers=these.numbers[kept],
        step=these.step[kept],
        joules=these.joules[kept],
        others=these.others + len(these) - len(kept),
        beyond=min(these.beyond, float(least[rest].min())),
    )


def least_of(values: NDArray[np.float64], many: int) -> NDArray[np.intp]:
    """Return the rows of the `many` least values, in their order; of equal ones, the first. Only these are sorted."""
    if many >= len(values):
        return np.argsort(values, kind="stable")
    last = np.partition(values, many - 1)[many - 1]
    below = np.flatnonzero(values < last)
    ties = np.flatnonzero(values == last)[: many - len(below)]
    return np.concatenate([below[np.argsort(values[below], kind="stable")], ties])


def _range_of(arguments: Mapping[str, Any], number: int) -> tuple[Experiment, int, int]:
    """Return the experiment that a chunk belongs to, and from where to where it reaches in its combinations."""
    size, totals = arguments["size"], arguments["combinations"]
    ends = np.cumsum([-(-total // size) for total in totals])
    at = int(np.searchsorted(ends, number, side="right"))
    first = number - int(ends[at - 1]) if at else number
    return experiment_of(arguments["experiments"][at]), *part(size, first, totals[at])


def chunk(arguments: Mapping[str, Any], number: int) -> Arrays:
    """Return the candidates of a range of combinations, and how many others there are, by reason."""
    experiment, start, stop = _range_of(arguments, number)
    within = space(experiment, None, start, stop)
    left_out, step, joules = Counter(within.left_out), np.zeros(0), np.zeros(0)
    numbers = within.numbers
    if len(within):
        bounds = bound(experiment, within)
        room = float(experiment.machine.device.memory)
        fits, alone = bounds.memory <= room, int((bounds.state > room).sum())
        left_out += Counter(dict(zip(UNFIT, (alone, int((~fits).sum()) - alone), strict=True)))
        numbers, step, joules = numbers[fits], bounds.step[fits], bounds.joules[fits]
    return {
        "numbers": numbers,
        "step": step,
        "joules": joules,
        "legal": np.array(len(within)),
        "reasons": np.array(list(left_out), str),
        "counts": np.array(list(left_out.values()), np.int64),
    }
