"""Prediction of an experiment with arrays, element by element; results are stacked into arrays."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from lib_dlhpc.costs.network import Cost
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

Place = tuple[int, ...]


def holds_arrays(experiment: Experiment) -> bool:
    """Whether any field of an experiment is an array."""
    return bool(_arrays(experiment))


def elementwise(function: Callable[..., Any], experiment: Experiment, *others: Any) -> Any:
    """Return function(experiment, *others) for each element of its arrays, as one result of arrays.

    Results are numbers, or dataclasses of numbers, tables and costs; the result has the given `experiment`.
    """
    arrays = [*_arrays(experiment), *(value for value in others if np.ndim(value))]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    results = [
        function(_at(experiment, place, shape), *(_at(value, place, shape) for value in others))
        for place in np.ndindex(shape)
    ]
    if not is_dataclass(results[0]):
        return np.array(results).reshape(shape)
    first: Any = results[0]
    stacked = {
        item.name: _stacked([getattr(result, item.name) for result in results], shape)
        for item in fields(first)
        if item.name != "experiment"
    }
    return replace(first, experiment=experiment, **stacked)


def _arrays(noun: Any) -> list[Any]:
    if isinstance(noun, np.ndarray) and noun.ndim:
        return [noun]
    if isinstance(noun, int | float | str | Model):
        return []
    if isinstance(noun, Mapping):
        return list(chain.from_iterable(map(_arrays, noun.values())))
    return list(_of_fields(Keyed(noun, id(noun)))) if is_dataclass(noun) else []


@lru_cache(maxsize=256)
def _of_fields(noun: Keyed[Any]) -> tuple[Any, ...]:
    """Return the arrays of a frozen dataclass; most of those of an experiment are asked for often."""
    return tuple(chain.from_iterable(map(_arrays, vars(noun.value).values())))


def _at(noun: Any, place: Place, shape: Place) -> Any:
    """Return a noun with each array replaced by its element."""
    if isinstance(noun, np.ndarray) and noun.ndim:
        return np.broadcast_to(noun, shape)[place].item()
    if isinstance(noun, Mapping):
        return {key: _at(value, place, shape) for key, value in noun.items()}
    if not is_dataclass(noun) or not _arrays(noun):
        return noun
    changed = {name: _at(value, place, shape) for name, value in vars(noun).items()}
    return replace(noun, **changed)  # type: ignore[type-var]


def _stacked(values: list[Any], shape: Place) -> Any:
    first = values[0]
    if isinstance(first, Mapping):
        union = {key: entry for value in values for key, entry in value.items()}
        return {
            key: _stacked([value.get(key, _zero(entry)) for value in values], shape)
            for key, entry in union.items()
        }
    if isinstance(first, tuple):
        parts: Any = (_stacked(list(part), shape) for part in zip(*values, strict=True))
        return type(first)(*parts)
    return np.array(values).reshape(shape)


def _zero(entry: Any) -> Any:
    """Return a zero like `entry`, for a table without it."""
    return Cost(0.0, 0.0, 0.0) if isinstance(entry, tuple) else 0.0
