"""Plan: the best layouts of a run; each choice is an experiment that can be predicted, simulated and saved."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.planner.pareto_front import difference, front, knee
from lib_dlhpc.prediction import Breakdown, predict
from lib_dlhpc.prediction.validation.trust import trust_words
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.planning import OBJECTIVES
from lib_dlhpc.spec.strategy import Strategy
from lib_dlhpc.spec.units import count, format_energy, format_times
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    import altair as alt

QUANTITIES = {  # objectives and what can be limited: field of a prediction, and its unit
    "time": ("time_to_train", "s"),
    "energy": ("energy_to_train", "J"),
    "cost": ("device_hours", "device-hours"),
    "memory": ("memory_total", "B"),
    "step": ("step_time", "s"),
}
ROWS = 11  # of the table
WORDS = {  # a field at the default of the strategy is not named
    "data": "data {}",
    "tensor": "tensor {}",
    "pipeline": "pipeline {}",
    "spatial": "spatial {}",
    "context": "context {}",
    "microbatches": "{} microbatches",
    "schedule": "{}",
    "chunks": "{} chunks",
    "stage_cut": "cut by {}",
    "zero": "ZeRO {}",
    "recompute": "recompute {}",
    "offload": "offload {}",
    "experts": "experts {}",
    "expert_exchange": "{} exchange",
    "shards": "over {} ranks",
    "gather": "{} gather",
    "zero_unit": "{0} by {0}",
    "tensor_pieces": "in {} pieces",
    "power_limit": "at most {:g} W",
}


def value(prediction: Breakdown, quantity: str) -> float:
    """Return an objective of a scalar prediction, or its memory: s, J, device-hours or B."""
    return float(getattr(prediction, QUANTITIES[quantity][0]))


def in_words(amount: float, objective: str) -> str:
    """Return an amount of an objective in words; energy as in reports of a prediction."""
    if objective == "energy":
        return format_energy(amount)
    return show(amount, QUANTITIES[objective][1])


def _column(amounts: list[float], objective: str) -> list[str]:
    """Return amounts of an objective in words, times all in one unit."""
    if objective == "time":
        return format_times(amounts)
    return [in_words(amount, objective) for amount in amounts]


@dataclass(frozen=True)
class Choice:
    """One layout: what it changes of the planned experiment, and what is predicted of it.

    values: of each of QUANTITIES.
    """

    base: Experiment = field(compare=False)
    changes: dict[str, Any]
    values: dict[str, float]

    @cached_property
    def prediction(self) -> Breakdown:
        """The prediction of this layout, term by term."""
        return predict(self.experiment)

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment with this layout."""
        return self.base.set(self.changes)

    @property
    def words(self) -> str:
        """The layout in words."""
        strategy = self.experiment.strategy
        named = []
        for name, text in WORDS.items():
            given = getattr(strategy, name)
            staged = name == "schedule" and strategy.pipeline > 1
            if given > 1 if name == "data" else staged or given != getattr(Strategy, name):
                named.append(text.format(given))
        named += ["sequence parallel"] * bool(strategy.sequence_parallel)
        if self.base.plan.batch:
            named.append(f"batch {int(self.experiment.global_batch):,}")
        plain = {f"strategy.{name}" for name in (*WORDS, "sequence_parallel", "batch")}
        named += [
            f"{name.partition('.')[2].replace('_', ' ')} {given}"
            for name, given in self.changes.items()
            if name not in plain
        ]
        return ", ".join(named) or "one device"


@dataclass(frozen=True, repr=False)
class Plan(Result):
    """The best layouts, in the order of the first objective.

    left_out: combinations that are illegal or do not fit, by reason. legal: combinations that were searched, of which
    `predicted` were predicted and `pruned` were not, as their bound is at least `least`. same: combinations that were
    the same as another. accuracy: where a batch or a setting that changes accuracy was a choice, or
    with a target, where the epochs of the best are from, or that nobody knows. refused: batches and settings that were
    not searched, with the reason: what is proved is proved of the others.
    """

    base: Experiment
    objectives: tuple[str, ...]
    ranked: tuple[Choice, ...]
    left_out: Counter[str]
    legal: int
    predicted: int
    pruned: int
    least: float
    same: int
    accuracy: str = ""
    refused: tuple[str, ...] = ()

    @property
    def best(self) -> Choice:
        """The choice with least of the first objective."""
        return self.ranked[0]

    @property
    def gap(self) -> float:
        """The most by which the best layout of all can be better, as a fraction of the best found; 0: proved."""
        found = self.best.values[self.objectives[0]]
        return max(0.0, 1 - self.least / found)

    @cached_property
    def front(self) -> tuple[Choice, ...]:
        """The choices that no other is better than in all objectives, of those predicted."""
        return tuple(self.ranked[row] for row in front(self._values(self.ranked)))

    @property
    def knee(self) -> Choice:
        """The choice of the front where a little less of one objective starts to cost much of another."""
        return self.front[knee(self._values(self.front))]

    def _values(self, choices: tuple[Choice, ...]) -> Any:
        return np.array([[c.values[name] for name in self.objectives] for c in choices])

    @property
    def certificate(self) -> str:
        """What is known of the layouts that were not predicted, in a sentence."""
        least = in_words(self.least, self.objectives[0])
        if not self.gap:
            others = f": the {self.pruned:,} others cannot go below {least}"
            return "proved best" + others * (not isinf(self.least))
        return f"within {self.gap:.1%} of the best: {self.pruned:,} others have at least {least}"

    @property
    def reasons(self) -> tuple[str, ...]:
        """How many combinations were left out, by reason: first what was refused, then most first."""
        most = self.left_out.most_common()
        others = (f"{count:,}: {reason}" for reason, count in most if reason not in self.refused)
        return (*self.refused, *others)

    @property
    def along_the_front(self) -> tuple[str, ...]:
        """What changes from each choice of the front to the next."""
        pairs = zip(self.front, self.front[1:], strict=False)
        return tuple(difference(one.changes, other.changes) for one, other in pairs)

    def summary(self) -> Summary:
        """Return the best layouts, or the front of several objectives, in words."""
        several = len(self.objectives) > 1
        shown = self.front if several else self.ranked[:ROWS]
        facts = {"best": self.best.words}
        if several:
            facts["knee"] = self.knee.words
        if self.accuracy:
            facts["accuracy"] = self.accuracy.removeprefix("accuracy ")
        facts |= {
            "certificate": self.certificate,
            "searched": f"{self.legal:,} layouts, {self.predicted:,} predicted",
            "trust": trust_words(self.best.experiment, self.best.values["step"]),
        }
        e = self.base
        what, where = e.model.name or "a model", e.machine.name or "a machine"
        title = f"plan of {what} on {where}, {count(e.devices, 'device')}"
        names = self.objectives if several else ("time", "energy", "cost")
        columns = [
            [choice.words for choice in shown],
            *(_column([choice.values[name] for choice in shown], name) for name in names),
            [show(choice.values["memory"], "B") for choice in shown],
        ]
        rows = list(zip(*columns, strict=True))
        return Summary(
            title,
            facts,
            ("layout", *names, "memory"),
            rows,
            0 if several else max(0, len(self.ranked) - ROWS),
        )

    def to_columns(self) -> Columns:
        """Return a row for each choice: its fields, time (s), energy (J), cost (device-hours), step and memory."""
        first = self.ranked[0].changes
        columns: Columns = {name: [c.changes[name] for c in self.ranked] for name in first}
        for name in OBJECTIVES:
            columns[name] = [c.values[name] for c in self.ranked]
        columns["step_time"] = [c.values["step"] for c in self.ranked]
        columns["memory"] = [c.values["memory"] for c in self.ranked]
        kept = {id(choice) for choice in self.front}
        columns["front"] = [id(choice) in kept for choice in self.ranked]
        return columns

    def plot(self) -> "alt.Chart":
        """Return the terms of a step of the best layouts as stacked bars."""
        from lib_dlhpc.results.charts import stacked_bars

        rows = [
            (choice.words, name, seconds)
            for choice in self.ranked[:ROWS]
            for name, seconds in choice.prediction.terms.items()
            if seconds
        ]
        bars = {
            key: list(each)
            for key, each in zip(
                ("configuration", "term", "seconds"), zip(*rows, strict=True), strict=True
            )
        }
        return stacked_bars(bars, "configuration", self.summary().title)
