"""Plain values for JSON, in SI units; null stands for infinity and NaN."""

import json
import math
from collections.abc import Mapping
from typing import Any

from lib_dlhpc.spec.experiment import Experiment, to_tables


def as_json(values: Any) -> str:
    """Return plain values as JSON text; a number that is not finite is null."""
    return json.dumps(finite(values), indent=2, allow_nan=False)


def plain_tables(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment as the tables of its TOML, with quantities as numbers in SI units, for JSON."""
    tables: dict[str, Any] = finite(in_si(to_tables(experiment), experiment))
    return tables


def in_si(table: Any, noun: Any) -> Any:
    """Return a table of `noun` with its numbers in place of text such as "12.5 GB/s"."""
    if isinstance(table, Mapping):
        return {key: in_si(value, _part(noun, key)) for key, value in table.items()}
    if isinstance(table, list | tuple):
        parts = noun if isinstance(noun, list | tuple) and len(noun) == len(table) else table
        return [in_si(value, part) for value, part in zip(table, parts, strict=True)]
    is_number = isinstance(noun, int | float) and not isinstance(noun, bool)
    return noun if isinstance(table, str) and is_number else table


def finite(values: Any) -> Any:
    """Return plain values with None in place of each number that is not finite."""
    if isinstance(values, Mapping):
        return {key: finite(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [finite(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


def _part(noun: Any, key: str) -> Any:
    return noun.get(key) if isinstance(noun, Mapping) else getattr(noun, key, None)
