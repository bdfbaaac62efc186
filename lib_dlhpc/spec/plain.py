"""Plain: what is told as JSON, in SI units; JSON has no infinity, and null stands for it."""

import json
import math
from collections.abc import Mapping
from typing import Any

from lib_dlhpc.spec.experiment import Experiment, to_tables


def as_json(told: Any) -> str:
    """Return plain values as the text of JSON; a number that is not finite is null."""
    return json.dumps(finite(told), indent=2, allow_nan=False)


def plain_tables(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment as the tables of its TOML, with quantities as numbers in SI units, ready for JSON."""
    tables: dict[str, Any] = finite(in_si(to_tables(experiment), experiment))
    return tables


def in_si(table: Any, noun: Any) -> Any:
    """Return a table of `noun` in which text such as "12.5 GB/s" is the number that the noun has there."""
    if isinstance(table, Mapping):
        return {key: in_si(value, _part(noun, key)) for key, value in table.items()}
    if isinstance(table, list | tuple):
        parts = noun if isinstance(noun, list | tuple) and len(noun) == len(table) else table
        return [in_si(value, part) for value, part in zip(table, parts, strict=True)]
    is_number = isinstance(noun, int | float) and not isinstance(noun, bool)
    return noun if isinstance(table, str) and is_number else table


def finite(told: Any) -> Any:
    """Return plain values with None in place of each number that is not finite."""
    if isinstance(told, Mapping):
        return {key: finite(value) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return [finite(value) for value in told]
    return None if isinstance(told, float) and not math.isfinite(told) else told


def _part(noun: Any, key: str) -> Any:
    return noun.get(key) if isinstance(noun, Mapping) else getattr(noun, key, None)
