"""Points of a grid by their number, so that a grid of any size is predicted piece by piece."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import FieldError, SpecError
from lib_dlhpc.prediction.breakdown import Breakdown
from lib_dlhpc.prediction.step import predict
from lib_dlhpc.prediction.sweeps.sweep import CHUNK, is_named
from lib_dlhpc.prediction.what_if import what_if
from lib_dlhpc.spec.experiment import Experiment

Axes: TypeAlias = Mapping[str, Sequence[Any]]  # dotted fields; the last one varies fastest
Arrays: TypeAlias = dict[str, NDArray[Any]]
Rows: TypeAlias = NDArray[np.intp]
Maker: TypeAlias = Callable[[Mapping[str, Any]], Experiment]
Refused: TypeAlias = dict[str, tuple[int, int]]  # by rule: how many points, and the first
VALUE = re.compile(r"\[[^]]*\]|'[^']*'|\bany\b|\b\d[\d.,]*(?:e[+-]?\d+)?\b")
VALUES = re.compile(r"#(?:, #)+")  # of a list, however long
QUANTITIES = {  # of a prediction, with their units
    "step_time": "s",
    "throughput": "samples/s",
    "memory_total": "B",
    "time_to_train": "s",
    "energy_to_train": "J",
    "device_hours": "device-hours",
}
MOST = 10**15  # points: their numbers are exact


def count(axes: Axes) -> int:
    """Return the number of points of a grid. Raises SpecError for none, and for more than MOST."""
    try:
        lengths = [len(values) for values in axes.values()]
    except OverflowError:  # a range longer than any sequence can be
        raise SpecError(f"A range has too many values; legal: up to {MOST:,} points.") from None
    if not lengths or not all(lengths):
        raise SpecError("A sweep needs at least one axis, and each axis at least one value.")
    points = prod(lengths)
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


def check_axes(experiment: Experiment, axes: Axes) -> None:
    """Raise FieldError for an axis that is no field, or a value that no other axis can make legal."""
    for name, values in axes.items():
        if is_named(name, values):
            tried: Iterable[Any] = values
        else:
            tried = [np.asarray([values[0], values[-1]] if isinstance(values, range) else values)]
        for each in tried:
            try:
                experiment.set({name: each})
            except FieldError:
                raise
            except SpecError:
                pass  # two fields at odds: another axis may change the other one


def predict_points(
    experiment: Experiment, axes: Axes, start: int, stop: int, refused: Refused | None = None
) -> Arrays:
    """Return QUANTITIES, "fits" and "legal" of the points from `start` to before `stop`, (points,) each.

    Each is that of predict(what_if(experiment, ...)). Numbers are predicted as arrays, text and switches one by one.
    Quantities of illegal points are NaN. refused: where given, gets how many points break each rule, and the first.
    """
    named = {name: len(values) for name, values in axes.items() if is_named(name, values)}
    found: Arrays = {name: np.full(stop - start, np.nan) for name in QUANTITIES}
    found |= {name: np.zeros(stop - start, bool) for name in ("fits", "legal")}
    size, makers = CHUNK * prod(named.values()), dict[tuple[Any, ...], Maker]()
    for low in range(start, stop, size):
        columns = values_at(axes, np.arange(low, min(low + size, stop)))
        numbers = {name: each for name, each in columns.items() if name not in named}
        for rows in _alike([columns[name] for name in named], len(next(iter(columns.values())))):
            fixed = {name: columns[name][rows[0]].item() for name in named}
            key = tuple(fixed.values())
            if key not in makers:
                makers[key] = _maker(experiment, axes, fixed)
            for some, prediction in _apart(rows, makers[key], numbers):
                if isinstance(prediction, Breakdown):
                    for name in (*QUANTITIES, "fits"):
                        found[name][some + (low - start)] = getattr(prediction, name)
                    found["legal"][some + (low - start)] = True
                elif refused is not None:
                    refuse(refused, rule(prediction), len(some), int(some.min()) + low)
    return found


def refuse(refused: Refused, rule: str, points: int, first: int) -> None:
    """Add points that break a rule, of which `first` is the first."""
    before, least = refused.get(rule, (0, first))
    refused[rule] = before + points, min(least, first)


def rule(error: SpecError) -> str:
    """Return what an error says, without the values that differ from point to point."""
    return VALUES.sub("#", VALUE.sub("#", " ".join(str(error).split())))


def _maker(experiment: Experiment, axes: Axes, fixed: Mapping[str, Any]) -> Maker:
    """Return a function from the numbers of some points to their experiment; text and switches are `fixed`."""
    given = any(name.startswith("calibration.") for name in axes)
    changed: Maker = experiment.set if given else partial(what_if, experiment)
    try:
        base = changed(fixed)
    except SpecError:  # numbers may make legal what is not legal with those of the experiment
        return lambda numbers: changed({**fixed, **numbers})
    return lambda numbers: base.set(numbers) if numbers else base


def _apart(
    rows: Rows, make: Maker, numbers: Arrays
) -> Iterator[tuple[Rows, Breakdown | SpecError]]:
    """Yield the rows that are legal with their predictions, and those that are not with the error.

    Where an error does not say which rows it is of, they are halved until it is of one.
    """
    waiting = [rows]
    while waiting:
        some = waiting.pop()
        one = not numbers or len(some) == 1
        found = _tried(make, {name: each[some] for name, each in numbers.items()})
        if isinstance(found, Breakdown):
            yield some, found
            continue
        wrong = np.asarray(True if one else found.where)
        if wrong.dtype == bool and wrong.shape in ((), some.shape) and wrong.any():
            wrong = np.broadcast_to(wrong, some.shape)
            yield some[wrong], found
            waiting += [some[~wrong]] * (not wrong.all())
        else:
            half = len(some) // 2
            waiting += [some[half:], some[:half]]


def _tried(make: Maker, numbers: Arrays) -> Breakdown | SpecError:
    """Return the prediction of points, or the error of some of them."""
    try:
        experiment = make(numbers)
    except SpecError as error:
        return error
    try:
        return predict(experiment)
    except SpecError as error:
        error.where = None  # it may be of an element that was predicted alone
        return error


def _alike(columns: Sequence[NDArray[Any]], points: int) -> list[NDArray[np.intp]]:
    """Return the rows of each combination of values that occurs."""
    code = np.zeros(points, np.int64)
    for column in columns:
        _, place = np.unique(column, return_inverse=True)
        code = code * (place.max() + 1) + place
    order = np.argsort(code, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
