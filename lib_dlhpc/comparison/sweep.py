"""A sweep: one comparison for each of several settings, with interleaved runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib_dlhpc.comparison.comparison import (
    SECONDS,
    Begin,
    Comparison,
    Expected,
    Look,
    beside,
    estimated,
    measured,
    start_beside,
)
from lib_dlhpc.comparison.placed import Placed, check_here, check_many, placed
from lib_dlhpc.comparison.steady import Steps
from lib_dlhpc.errors import SpecError
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.prediction import what_if
from lib_dlhpc.prediction.changes import resplit
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.machine import Machine
from lib_dlhpc.training.check import check

if TYPE_CHECKING:
    import altair as alt

RANKS = "ranks"  # an axis that is no field of an experiment: ranks that split the global batch
PARTS = ("data", "tensor", "pipeline", "spatial", "context")  # degrees of parallelism
DEVICES = "strategy.devices_per_node"
ALONG = {"strategy.microbatches", "strategy.schedule", "strategy.chunks"}  # see resplit.of_batch
MOST = 64  # settings; each needs a run
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One setting of a sweep, with its comparison, or the reason for its absence.

    along: the fields that were set besides, such as the microbatches of another batch.
    """

    setting: Mapping[str, Any]
    comparison: Comparison | None
    problem: str = ""
    along: Mapping[str, Any] = field(default_factory=dict)

    @property
    def moved(self) -> str:
        """What was set besides the setting, as text; "" for nothing."""
        own, more = (
            ", ".join(f"{name.rpartition('.')[2]} = {value}" for name, value in fields.items())
            for fields in (self.setting, self.along)
        )
        return f"{own}: also {more}" if more else ""


@dataclass(frozen=True, repr=False)
class Sweep(Result):
    """All settings of a sweep."""

    axes: Mapping[str, Sequence[Any]]
    rows: tuple[Row, ...]

    @property
    def judged(self) -> list[Comparison]:
        """The comparisons that get a verdict."""
        return [
            row.comparison for row in self.rows if row.comparison and not row.comparison.no_verdict
        ]

    def as_text(self) -> str:
        """Return a row for each setting, for a terminal."""
        from lib_dlhpc.comparison.sweep_text import as_text

        return as_text(self)

    def as_dict(self) -> dict[str, Any]:
        """Return all comparisons as plain values in SI units, ready for JSON."""
        rows = [
            {
                "setting": dict(row.setting),
                "along": dict(row.along),
                "problem": row.problem,
                **(row.comparison.as_dict() if row.comparison else {}),
            }
            for row in self.rows
        ]
        return {"axes": {name: list(values) for name, values in self.axes.items()}, "rows": rows}

    def summary(self) -> Summary:
        """Return the step time of each setting each way, in words."""
        from lib_dlhpc.comparison.summary import sweep_summary

        return sweep_summary(self)

    def to_columns(self) -> Columns:
        """Return the rows of each comparison with its setting."""
        from lib_dlhpc.comparison.summary import sweep_columns

        return sweep_columns(self)

    def plot(self) -> "alt.Chart":
        """Return a line of the step time for each way."""
        from lib_dlhpc.comparison.summary import sweep_steps
        from lib_dlhpc.results.charts import lines

        steps, x = sweep_steps(self)
        return lines(steps, x, "step_time", "series", self.summary().title, "s")


def sweep(
    experiment: Experiment,
    axes: Mapping[str, Sequence[Any]],
    ranks: int | None = None,
    machine: Machine | None = None,
    steps: int | None = None,
    folder: Path | None = None,
    seconds: float = SECONDS,
    look: Look = lambda job: None,
    begin: Begin = start_beside,
    repeats: int = 1,
    most: int | None = None,
) -> Sweep:
    """Compare every combination of `axes`: fields of the experiment, or "ranks", each with its values.

    If only degrees of parallelism are swept, the number of devices follows: strategy.tensor = 2 doubles it. Every
    setting runs `repeats` times, interleaved, so that drift of the machine affects all settings alike. folder: parent
    of the run folders. most: largest number of ranks of a setting; None: no limit. Other arguments are those of
    `compare`. Where the batch is swept, microbatches keep their samples. A setting that cannot run becomes a
    row with the reason. Raises SpecError for illegal axes, and if no setting can run.
    """
    settings = settings_of(axes)
    expected: list[Expected | str] = []
    for setting in settings:
        try:
            expected.append(estimated(placed_setting(experiment, setting, ranks, machine, most)))
        except SpecError as error:
            expected.append(str(error))
    wrong = [each for each in expected if isinstance(each, str)]
    if len(wrong) == len(expected):
        raise SpecError(wrong[0])
    runs = interleaved(expected, steps, seconds, repeats, folder, look, begin)
    every = zip(settings, expected, runs, strict=True)
    return Sweep(axes, tuple(_row(experiment, *each) for each in every))


def placed_setting(
    experiment: Experiment,
    setting: Mapping[str, Any],
    ranks: int | None = None,
    machine: Machine | None = None,
    most: int | None = None,
) -> Placed:
    """Return one setting of a sweep on this machine; arguments are those of `sweep`.

    Raises SpecError for a setting that cannot run here.
    """
    fields = _fields(experiment, {**resplit.beside(experiment, setting), **setting})
    there = what_if(experiment, fields) if fields else experiment
    check(there)
    here = placed(there, setting.get(RANKS, ranks), machine)
    check_many(here, most)
    check_here(here)
    return here


def interleaved(
    expected: Sequence[Expected | str],
    steps: int | None,
    seconds: float,
    repeats: int,
    folder: Path | None = None,
    look: Look = lambda job: None,
    begin: Begin = start_beside,
) -> list[list[Steps] | str]:
    """Run each once per repeat, interleaved; return the runs of each, or why one failed. A text is passed through."""
    runs: list[list[Steps] | str] = [each if isinstance(each, str) else [] for each in expected]
    for turn in range(repeats):
        for number, each in enumerate(expected):
            done = runs[number]
            if isinstance(each, str) or isinstance(done, str):
                continue
            wanted = each.steps_in(seconds / repeats) if steps is None else steps
            where = folder / f"{number + 1}-{turn + 1}" if folder else None
            try:
                done.append(measured(each.placed, wanted, where, look, begin))
            except (JobError, SpecError) as error:
                runs[number] = str(error)
    return runs


def _moved(experiment: Experiment, setting: Fields, here: Placed) -> Fields:
    """Return the fields that a setting moved along, with their values."""
    ways = ((name, name.removeprefix("strategy.")) for name in sorted(ALONG - setting.keys()))
    found = {name: getattr(here.experiment.strategy, field) for name, field in ways}
    before = {name: getattr(experiment.strategy, name.removeprefix("strategy.")) for name in found}
    return {name: value for name, value in found.items() if value != before[name]}


def _fields(experiment: Experiment, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to change for a setting, including the devices that it needs."""
    fields = {name: value for name, value in setting.items() if name != RANKS}
    if not any(f"strategy.{part}" in fields for part in PARTS) or DEVICES in fields:
        return fields
    shares = [fields.get(f"strategy.{p}", getattr(experiment.strategy, p)) for p in PARTS]
    if not all(type(share) is int for share in shares):
        return fields  # the spec reader reports the error
    devices = prod(max(share, 1) for share in shares)
    if devices > experiment.machine.devices_per_node:
        fields["machine.devices_per_node"] = devices
    return fields | {"strategy.nodes": 1, DEVICES: devices}


def _row(
    experiment: Experiment, setting: Fields, expected: Expected | str, runs: list[Steps] | str
) -> Row:
    if isinstance(expected, str) or isinstance(runs, str):
        return Row(setting, None, str(runs))
    moved = _moved(experiment, setting, expected.placed)
    return Row(setting, beside(expected, runs), along=moved)


def settings_of(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of the values of the axes. Raises SpecError for none, and for more than MOST."""
    if not axes or not all(len(values) for values in axes.values()):
        raise SpecError("A sweep needs at least one axis, and each axis at least one value.")
    settings = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    if len(settings) > MOST:
        raise SpecError(f"{len(settings)} settings: legal: at most {MOST}.")
    return settings
