"""A sweep of the explorer before anything is run: each setting predicted, and simulated where that is quick."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import State, between
from lib_dlhpc.explore.compare.charts import label, points_state
from lib_dlhpc.explore.compare.sweep import settings_html
from lib_dlhpc.explore.explorer.axes import at, beside
from lib_dlhpc.explore.explorer.labels import labeled
from lib_dlhpc.explore.explorer.limits import steps_within
from lib_dlhpc.explore.explorer.measured import known_of
from lib_dlhpc.explore.explorer.moves import also
from lib_dlhpc.explore.explorer.simulated import ALL
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import DeadlockError, measure, simulate
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.units import format_quantity as show

WAYS = ("predicted", "rounds", "events")
# Of all settings together: half a second or so, in which a page answers to nothing else. Counted, not timed, so that
# the same settings are simulated on every machine.
MOST_ROWS, MOST_MESSAGES = 40_000, 30_000
LEFT_OUT = "-: this takes too long to simulate here; the command dlhpc simulate has no such limit."


@dataclass
class Row:
    """One setting: s of a step by way, and what it may be off by; or why there is none."""

    name: str  # of the field
    value: Any
    step: dict[str, float] = field(default_factory=dict)
    bands: dict[str, tuple[float, float] | None] = field(default_factory=dict)
    problem: str = ""
    also: str = ""  # what was set beside the value

    @property
    def label(self) -> str:
        """The value as the chart has it."""
        return label({self.name: self.value})


def predict_rows(experiment: Experiment, name: str, values: Sequence[Any]) -> list[Row]:
    """Return the prediction for each value of a field, on the experiment's own machine."""
    rows = [Row(name, value) for value in values]
    there = [(row, one) for row in rows if (one := _predict(row, experiment)) is not None]
    for row, one in there:
        for fidelity in WAYS[1:]:
            share = (MOST_ROWS / len(there), MOST_MESSAGES / len(there))
            if steps := steps_within(one, fidelity, *share):
                _simulate(row, one, fidelity, steps)
    return rows


def _predict(row: Row, experiment: Experiment) -> Experiment | None:
    try:
        there = at(experiment, {row.name: row.value})
        row.also = also(experiment, beside(experiment, {row.name: row.value}))
        prediction = predict(there)
    except SpecError as error:
        row.problem = labeled(str(error))
        return None
    row.step["predicted"] = float(prediction.step_time)
    if not there.strategy.is_split:  # its draws take half a second
        row.bands["predicted"] = known_of(prediction).bands.get(ALL)
    return there


def _simulate(row: Row, experiment: Experiment, fidelity: str, steps: int) -> None:
    every = int(experiment.strategy.local_steps)
    try:
        timeline = simulate(experiment, fidelity, steps=-(-steps // every) * every)
    except (SpecError, DeadlockError):
        return  # there is no such point; "Simulate this step" says why
    row.step[fidelity] = seconds = measure(experiment, timeline).step_time
    if band := row.bands.get("predicted"):
        by = seconds / row.step["predicted"]  # as compare has it: off by the same factor
        row.bands[fidelity] = (band[0] * by, band[1] * by)


def rows_state(rows: Sequence[Row], title: str) -> State:
    """Every setting that can be: a point for each way."""
    found = [row for row in rows if row.step]
    shown = [(row.label, row.step, row.bands) for row in found]
    axes = {rows[0].name: [row.value for row in found]}
    return points_state(shown, axes, f"{title}: {_words(found)}")


def _words(rows: Sequence[Row]) -> str:
    if not rows:
        return "none of the values is possible."
    order = sorted(rows, key=lambda row: row.step["predicted"])
    (least, most), times = (order[0], order[-1]), [row.step["predicted"] for row in order]
    shortest = show(times[0], "s")
    if len(rows) == 1:
        return f"predicted, one step takes {shortest} at {least.label}."
    if times[-1] <= times[0] * (1 + 1e-9):
        return f"predicted, one step takes {shortest} whatever the value."
    longest = f"longest at {most.label} with {show(times[-1], 's')}"
    return f"predicted, one step is shortest at {least.label} with {shortest}, {longest}."


def rows_html(rows: Sequence[Row]) -> str:
    """Return a row for each setting, as a table."""
    some = any(row.bands.get("predicted") for row in rows)
    head = rows[0].name.rpartition(".")[2].replace("_", " ")
    lines = [[head, *WAYS, *["90% band"] * some]]
    for row in rows:
        times = [show(row.step[way], "s") if way in row.step else "-" for way in WAYS]
        band = row.bands.get("predicted")
        cells = [*times, *[between(band) if band else "-"] * some]
        lines.append([row.label, *([row.problem] if row.problem else cells)])
    moved = [f"{row.label}: {row.also}" for row in rows if row.also]
    noted = f"<p><small>{escape(' '.join(moved))}</small></p>" if moved else ""
    left_out = any(row.step and len(row.step) < len(WAYS) for row in rows)
    return settings_html(lines) + noted + f"<p><small>{LEFT_OUT}</small></p>" * left_out
