"""A track of the race: a run, an objective, and a space of layouts small enough to predict all of them.

tracks_of(seed, hidden)         the tracks of a learner; hidden: those that are not shown
track.layouts                   the legal layouts, each a dict of fields of the strategy
track.row_of(layout)            the place of a layout among them; why it is not among them
track.outcome(row)              what a prediction of one gives: objective, terms, memory
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.planner.search_space import SAME, space
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.memory.rank_memory import peak
from lib_dlhpc.spec.experiment import Experiment, read_experiment
from lib_dlhpc.spec.units import format_quantity as show

Layout = dict[str, Any]
TRACKS = 3  # shown, and as many hidden
MACHINES = ("h100-pod", "selene", "summit")
NETWORKS = ("ethernet-25g", "ethernet-100g", "ib-hdr")
FITTING = (0.1, 0.2, 0.3)  # of the layouts, nearly: the quickest ones need more memory than these
LIMIT = 0.6  # power limit as a fraction of the busy power
OBJECTIVES = {"time": ("s", "a step"), "energy": ("J", "a sample")}
DERIVED = ("data", "batch")  # they follow from the other fields


class Outcome(NamedTuple):
    """A prediction of a layout. value: the objective, infinite where the layout does not fit.

    terms: s of a step by cause; memory: B of the fullest device.
    """

    value: float
    terms: dict[str, float]
    memory: float


@dataclass(frozen=True, eq=False)
class Track:
    """A run, an objective ("time": s a step, "energy": J a sample), and the values of fields to choose from."""

    experiment: Experiment
    objective: str
    choose: Mapping[str, list[Any]]

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The legal layouts."""
        legal = space(self.experiment, self.choose)
        return tuple(
            {name.removeprefix("strategy."): each for name, each in legal.changes(row).items()}
            for row in range(len(legal))
        )

    @cached_property
    def fields(self) -> dict[str, list[Any]]:
        """The fields that differ among the layouts, with their values; without those that follow from others."""
        values = {
            name: list(dict.fromkeys(one[name] for one in self.layouts)) for name in self.layouts[0]
        }
        return {n: each for n, each in values.items() if len(each) > 1 and n not in DERIVED}

    @cached_property
    def _rows(self) -> dict[tuple[Any, ...], int]:
        return {self._key(layout): row for row, layout in enumerate(self.layouts)}

    def _key(self, layout: Layout) -> tuple[Any, ...]:
        return tuple(layout[name] for name in self.fields)

    def row_of(self, layout: Any) -> int:
        """Return the place of a layout among the layouts. Raises LabError with the reason where it is not legal."""
        if not isinstance(layout, dict):
            raise LabError(f"{layout!r} is not a layout: a layout is one of `layouts`, a dict.")
        for name, legal in self.fields.items():
            if layout.get(name) not in legal:
                shown = ", ".join(map(str, legal))
                raise LabError(f"Illegal layout: {name} = {layout.get(name)}; legal: {shown}.")
        key = self._key(layout)
        if key not in self._rows:
            values = ", ".join(f"{name} {layout[name]}" for name in self.fields)
            raise LabError(f"Illegal layout: {values}. {self._reason(layout)}")
        return self._rows[key]

    def _reason(self, layout: Layout) -> str:
        fixed = {name: [layout[name]] for name in self.fields}
        reasons = space(self.experiment, {**self.choose, **fixed}).left_out
        first = next(iter(reasons))
        return "It is the same layout as another one." if first == SAME else f"Why: {first}."

    @cached_property
    def _known(self) -> dict[int, Outcome]:
        return {}

    def outcome(self, row: int) -> Outcome:
        """Return what a prediction of a layout gives."""
        if row not in self._known:
            self._known[row] = _outcome(predict(self.experiment_of(row)), self.objective)
        return self._known[row]

    def experiment_of(self, row: int) -> Experiment:
        """Return the run with a layout."""
        changes = {f"strategy.{name}": each for name, each in self.layouts[row].items()}
        return self.experiment.set(changes)

    @cached_property
    def needs(self) -> tuple[float, ...]:
        """B of the fullest device of each layout."""
        return tuple(float(peak(self.experiment_of(row)).total) for row in range(len(self.layouts)))

    def ledger(self, row: int) -> dict[str, float]:
        """Return B of the fullest device of a layout by term."""
        terms = peak(self.experiment_of(row)).terms
        return {name: float(each) for name, each in terms.items()}

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The objective of each layout; infinite where it does not fit."""
        return tuple(map(self._value, range(len(self.layouts))))

    def _value(self, row: int) -> float:
        """Return the objective of a layout; the ledger tells that it does not fit before its step is predicted."""
        if row not in self._known:
            if self.needs[row] > float(self.experiment.machine.device.memory):
                return inf
            self._known[row] = _outcome(predict(self.experiment_of(row)), self.objective)
        return self._known[row].value

    def regret(self, value: float) -> float:
        """Return by how much an objective is above the least of all layouts, as a fraction of that."""
        return value / min(self.values) - 1

    def show(self, value: float) -> str:
        """Return an objective in words."""
        unit, of = OBJECTIVES[self.objective]
        return f"{show(value, unit)} {of}"


def _outcome(prediction: Breakdown, objective: str) -> Outcome:
    terms = {name: float(each) for name, each in prediction.terms.items()}
    value = float(prediction.step_time)
    if objective == "energy":
        joules = float(sum(prediction.energy.values()))
        value = joules / float(prediction.experiment.global_batch)
    return Outcome(value if prediction.fits else inf, terms, float(prediction.memory_total))


@cache
def tracks_of(seed: int, hidden: bool = False) -> tuple[Track, ...]:
    """Return the tracks of a learner, by time and by energy in turn."""
    rng = np.random.default_rng([seed, 10, hidden])
    return tuple(_drawn(rng, ("time", "energy")[number % 2]) for number in range(TRACKS))


def _drawn(rng: np.random.Generator, objective: str) -> Track:
    """Return a run of which few layouts fit, on a fast or a slow network."""

    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    hidden = one(2048, 3072, 4096)
    model = {"family": "gpt", "layers": one(16, 24, 32), "hidden": hidden, "heads": hidden // 128}
    model |= {"sequence": one(512, 1024, 2048), "vocabulary": 51200}
    machine = {"name": one(*MACHINES), "inter_node": one(*NETWORKS), "nics": one(1, 4)}
    strategy = {"nodes": one(2, 4), "batch": one(1, 2, 4), "precision": "fp16", "optimizer": "adam"}
    choose: dict[str, list[Any]] = {
        "pipeline": [1, 2, 4],
        "sequence_parallel": [False],
        "microbatches": [1, 2, 4, 8, 16],
        "schedule": ["1f1b"],
        "chunks": [1],
        "zero": [0, 1, 3],
        "recompute": ["none", "full"],
    }
    tables = {"model": model, "machine": machine, "dataset": {"name": "webtext"}}
    plain = read_experiment(tables | {"strategy": strategy})
    if objective == "energy":
        choose["power_limit"] = [0, round(LIMIT * float(plain.machine.device.busy_power))]
        choose["microbatches"] = [1, 4, 16]
    room = float(np.quantile(Track(plain, objective, choose).needs, one(*FITTING)))
    return Track(plain.set({"machine.device.memory": room}), objective, choose)
