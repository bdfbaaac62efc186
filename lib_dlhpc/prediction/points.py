"""Points of a grid by their number, so that a grid of any size is predicted piece by piece."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.prediction.sweep import CHUNK, is_named
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.spec.experiment import Experiment

Axes: TypeAlias = Mapping[str, Sequence[Any]]  # dotted fields; the last one varies fastest
Arrays: TypeAlias = dict[str, NDArray[Any]]
QUANTITIES = {  # of a prediction, with their units
    "step_time": "s",
    "throughput": "samples/s",
    "memory_total": "B",
    "time_to_train": "s",
    "energy_to_train": "J",
    "device_hours": "h",
}
MOST = 10**15  # points: their numbers are exact


def count(axes: Axes) -> int:
    """Return the number of points of a grid. Raises SpecError for none, and for more than MOST."""
    if not axes or not all(map(len, axes.values())):
        raise SpecError("A sweep needs at least one axis, and each axis at least one value.")
    points = prod(map(len, axes.values()))
    if points > MOST:
        raise SpecError(f"{points:,} points: legal: up to {MOST:,}.")
    return points


def values_at(axes: Axes, points: NDArray[np.int64]) -> Arrays:
    """Return the value of each axis at each point, by its number."""
    places = np.unravel_index(points, tuple(map(len, axes.values())))
    found: Arrays = {}
    for (name, values), place in zip(axes.items(), places, strict=True):
        if isinstance(values, range):
            found[name] = values.start + values.step * place
        else:
            found[name] = np.asarray(values)[place]
    return found


def predict_points(experiment: Experiment, axes: Axes, start: int, stop: int) -> Arrays:
    """Return QUANTITIES and "fits" of the points from `start` to before `stop`, (points,) each.

    Each is that of predict(what_if(experiment, ...)). Numbers are predicted as arrays, text and switches one by one.
    Raises SpecError for an illegal point.
    """
    named = {name: len(values) for name, values in axes.items() if is_named(name, values)}
    given = any(name.startswith("calibration.") for name in axes)
    found: Arrays = {name: np.empty(stop - start) for name in QUANTITIES}
    found["fits"] = np.empty(stop - start, bool)
    size, bases = CHUNK * prod(named.values()), dict[tuple[Any, ...], Experiment]()
    for low in range(start, stop, size):
        columns = values_at(axes, np.arange(low, min(low + size, stop)))
        for rows in _alike([columns[name] for name in named], len(next(iter(columns.values())))):
            key = tuple(columns[name][rows[0]].item() for name in named)
            if key not in bases:
                fixed = dict(zip(named, key, strict=True))
                bases[key] = experiment.set(fixed) if given else what_if(experiment, fixed)
            numbers = {name: each[rows] for name, each in columns.items() if name not in named}
            prediction = predict(bases[key].set(numbers) if numbers else bases[key])
            for name, array in found.items():
                array[rows + (low - start)] = getattr(prediction, name)
    return found


def _alike(columns: Sequence[NDArray[Any]], points: int) -> list[NDArray[np.intp]]:
    """Return the rows of each combination of values that occurs."""
    code = np.zeros(points, np.int64)
    for column in columns:
        _, place = np.unique(column, return_inverse=True)
        code = code * (place.max() + 1) + place
    order = np.argsort(code, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
