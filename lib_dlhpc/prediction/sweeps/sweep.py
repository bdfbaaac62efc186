"""A what-if sweep: one vectorized prediction over the product of several axes."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.breakdown import TERMS, Breakdown
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.results import Columns, Result, Summary
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.given import check_given
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    import altair as alt

CHUNK = 16384  # configurations at a time: their arrays stay in the second-level cache
UNITS = {"step_time": "s", "throughput": " samples/s", "memory_total": "B"}  # of what is plotted
Arrays = dict[str, NDArray[Any]]
# The arrays of interest in a prediction, by name.
Quantities = Callable[[Breakdown], Mapping[str, Any]]


@dataclass(frozen=True, repr=False)
class Sweep(Result):
    """Predictions over a grid: each array has one axis for each entry of `axes`, in order."""

    axes: dict[str, list[Any]]
    experiment: Experiment
    step_time: NDArray[np.float64]
    throughput: NDArray[np.float64]
    memory_total: NDArray[np.float64]
    fits: NDArray[np.bool_]
    warnings: tuple[str, ...] = ()  # what values of the axes made void (see Experiment.set)

    def best(self, quantity: str = "throughput") -> dict[str, Any]:
        """Return the axis values of the configuration that fits and has the most of `quantity`.

        Raises SpecError if nothing fits.
        """
        if not self.fits.any():
            raise SpecError(nothing_fits(float(self.memory_total.min())))
        values = np.where(self.fits, getattr(self, quantity), -np.inf)
        at = np.unravel_index(int(values.argmax()), values.shape)
        return {key: values[i] for (key, values), i in zip(self.axes.items(), at, strict=True)}

    @cached_property
    def terms(self) -> Arrays:
        """The seconds of a step by cause, predicted when they are first asked for; their sum is step_time."""
        terms = {name: np.empty(self.step_time.shape) for name in TERMS}
        _predict_grid(self.experiment, self.axes, terms, lambda prediction: prediction.terms)
        return terms

    def summary(self) -> Summary:
        """Return the ranges, the best configuration and the first rows, in words."""
        from lib_dlhpc.prediction.reports.summary import sweep_summary

        return sweep_summary(self)

    def to_columns(self) -> Columns:
        """Return a row for each term of each configuration: the axes, `term`, `seconds`."""
        from lib_dlhpc.prediction.reports.summary import sweep_columns

        return sweep_columns(self)

    def plot(self, quantity: str = "throughput") -> "alt.Chart":
        """Return lines of step_time, throughput or memory_total over the longest axis."""
        from lib_dlhpc.prediction.reports.summary import sweep_lines
        from lib_dlhpc.results.charts import lines

        if quantity not in UNITS:
            raise SpecError(f"quantity = {quantity!r}: expected one of {', '.join(UNITS)}.")
        columns, x = sweep_lines(self, quantity)
        title = f"{quantity.replace('_', ' ').capitalize()} over {x}"
        return lines(columns, x, quantity, "series", title, UNITS[quantity])


def nothing_fits(least: float) -> str:
    """Return what is said of a sweep without a configuration that fits; least: B per device."""
    return (
        f"Nothing in this sweep fits in memory: the smallest needs {show(least, 'B')} per device."
        " Try smaller batches; `dlhpc plan` searches all layouts."
    )


def sweep(experiment: Experiment, axes: Mapping[str, Sequence[Any]]) -> Sweep:
    """Predict every combination of `axes`, such as {"strategy.nodes": range(1, 65), "strategy.allreduce": [...]}.

    Numbers are swept as arrays in chunks; text and switches (algorithm, precision, machine) one by one, as are ranks of
    adapters.
    Each result is that of predict(what_if(experiment, ...)).
    Raises SpecError for an illegal value of any axis.
    """
    check_given(experiment)
    grid = {key: list(values) for key, values in axes.items()}
    if not grid or not all(grid.values()):
        raise SpecError("A sweep needs at least one axis, and each axis at least one value.")
    shape = tuple(len(values) for values in grid.values())
    results: Arrays = {
        "step_time": np.empty(shape),
        "throughput": np.empty(shape),
        "memory_total": np.empty(shape),
        "fits": np.empty(shape, dtype=bool),
    }
    warnings = _predict_grid(
        experiment,
        grid,
        results,
        lambda prediction: {name: getattr(prediction, name) for name in results},
    )
    return Sweep(grid, experiment, **results, warnings=warnings)


def is_named(field: str, values: Sequence[Any]) -> bool:
    """Return whether no array holds the values of an axis: text, switches, or each another network."""
    return isinstance(values[0], str | bool) or field == "strategy.lora"


def _predict_grid(
    experiment: Experiment,
    grid: Mapping[str, Sequence[Any]],
    results: Arrays,
    quantities: Quantities,
) -> tuple[str, ...]:
    """Predict every combination of the axes and write the quantities of each into `results`.

    Returns what values of the axes made void.
    """
    given = any(key.startswith("calibration.") for key in grid)
    names = {key for key, values in grid.items() if is_named(key, values)}
    choices: list[list[Any]] = [
        list(range(len(values))) if key in names else [slice(None)] for key, values in grid.items()
    ]
    warnings: dict[str, None] = {}
    for place in itertools.product(*choices):
        fixed = {key: grid[key][at] for key, at in zip(grid, place, strict=True) if key in names}
        numbers = {key: np.asarray(values) for key, values in grid.items() if key not in names}
        here = experiment.set(fixed) if given else what_if(experiment, fixed)
        warnings |= dict.fromkeys(_fill(here, numbers, results, place, quantities))
    return tuple(warnings)


def _fill(
    experiment: Experiment,
    numbers: Mapping[str, NDArray[Any]],
    results: Arrays,
    place: tuple[Any, ...],
    quantities: Quantities,
) -> tuple[str, ...]:
    """Predict the grid of the numeric axes in chunks along the first and write it into `results` at `place`.

    Returns what they made void.
    """
    if not numbers:
        _store(quantities(predict(experiment)), results, place, ())
        return experiment.warnings
    first, *others = numbers
    rest = [numbers[key] for key in others]
    rows = max(1, CHUNK // max(1, int(np.prod([len(values) for values in rest]))))
    target = {name: array[place] for name, array in results.items()}
    for start in range(0, len(numbers[first]), rows):
        part = slice(start, start + rows)
        grids = np.ix_(numbers[first][part], *rest)
        chunk = experiment.set(dict(zip(numbers, grids, strict=True)))
        shape = tuple(grid.size for grid in grids)
        _store(quantities(predict(chunk)), target, part, shape)
    return chunk.warnings


def _store(found: Mapping[str, Any], results: Arrays, place: Any, shape: tuple[int, ...]) -> None:
    for name, array in results.items():
        array[place] = np.broadcast_to(found[name], shape)
