"""TOML tables to frozen dataclasses and back: each field declares its unit and range once."""

import dataclasses
import math
import warnings
from collections.abc import Collection, Mapping
from functools import cache, lru_cache
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.errors import FieldError, SpecError, listed, nearest
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.units import format_quantity, parse_quantity

SECTIONS = (  # of an experiment
    "model",
    "dataset",
    "machine",
    "strategy",
    "storage",
    "calibration",
    "run",
    "training",
    "plan",
)
REQUIRED = dataclasses.MISSING
_SCALAR = (str, int, float)
LEARNING = "what a network learns, not the time of a step"
# Effect of a run-only field (run_only.py), or of some of its values; None: all engines read the field.
RunOnly: TypeAlias = str | Mapping[str, str] | None
# Magnitudes of numbers other than 0: beyond, products overflow or underflow.
SMALLEST, GREATEST = 1e-30, 1e30


def holds(condition: Any) -> bool:
    """Return whether a condition holds, for any element where it is an array; asked often of single ones."""
    return bool(condition.any() if isinstance(condition, np.ndarray) else condition)


def number(
    unit: str = "",
    default: Any = REQUIRED,
    least: float = 0.0,
    most: float = math.inf,
    positive: bool = False,
    run_only: RunOnly = None,
    divides: bool = False,
    infinite: bool = False,
) -> Any:
    """Declare a real field in SI `unit` within [least, most]; `positive` excludes zero. May hold an array.

    Numbers other than 0 have a magnitude of SMALLEST to GREATEST; infinity is legal where it is the default, or
    `infinite`. A field that may be 0 and has a `most` accepts smaller magnitudes, unless something is divided
    by it.
    """
    meta = {"kind": "number", "unit": unit, "least": least, "most": most, "positive": positive}
    meta["infinite"] = infinite or (isinstance(default, float) and math.isinf(default))
    meta["tiny"] = math.isfinite(most) and not positive and not divides
    return dataclasses.field(default=default, metadata={**meta, "run_only": run_only})


def whole(
    default: Any = REQUIRED, least: int = 1, most: float = 1e15, run_only: RunOnly = None
) -> Any:
    """Declare an integer field within [least, most]. May hold an array."""
    meta = {"kind": "whole", "unit": "", "least": least, "most": most, "positive": False}
    return dataclasses.field(default=default, metadata={**meta, "run_only": run_only})


def choice(
    options: Collection[str],
    default: Any = REQUIRED,
    run_only: RunOnly = None,
    also: Mapping[str, str] | None = None,
) -> Any:
    """Declare a field that takes one of `options`. also: the option meant by each other name that is read."""
    meta = {"kind": "choice", "options": options, "run_only": run_only, "also": also or {}}
    return dataclasses.field(default=default, metadata=meta)


def flag(default: Any = REQUIRED) -> Any:
    """Declare a field that is true or false."""
    return dataclasses.field(default=default, metadata={"kind": "flag"})


def text(default: Any = "") -> Any:
    """Declare a field of free text."""
    return dataclasses.field(default=default, metadata={"kind": "text"})


# keys whose old names are read for one version
RENAMED = {"training.normalisation": "normalization"}
ELSEWHERE = {  # words of other tools for a field, for hints
    **dict.fromkeys(("gpus", "ngpus", "devices", "n", "world_size"), "strategy.nodes"),
    **dict.fromkeys(("tp", "tensor_parallel_size"), "strategy.tensor"),
    **dict.fromkeys(("pp", "pipeline_parallel_size"), "strategy.pipeline"),
    **dict.fromkeys(("cp", "context_parallel_size"), "strategy.context"),
    **dict.fromkeys(("ep", "expert_parallel_size"), "strategy.experts"),
    **dict.fromkeys(("dp", "data_parallel_size"), "strategy.data"),
    **dict.fromkeys(("fsdp", "zero_stage"), "strategy.zero"),
    **dict.fromkeys(("dtype", "mixed_precision"), "strategy.precision"),
    **dict.fromkeys(("batch_size", "micro_batch_size", "global_batch"), "strategy.batch"),
    **dict.fromkeys(("sequence", "seq_len", "seq_length", "sequence_length"), "model.sequence"),
    "gradient_accumulation": "strategy.microbatches",
    "activation_checkpointing": "strategy.recompute",
    "tokens": "run.tokens",  # read, but no field (tokens.py)
}
MOVED = {"training.test_share": "dataset.test_share"}  # keys of earlier versions


def check_keys(table: Any, legal: tuple[str, ...], path: str) -> None:
    """Raise SpecError unless `table` is a table whose keys are all `legal`."""
    if not isinstance(table, Mapping):
        raise SpecError(f"{path} = {table!r}: expected a table with the keys {', '.join(legal)}.")
    for key in table:
        if key not in legal:
            head = f"{path}.{key}: unknown key"
            if moved := MOVED.get(f"{path}.{key}"):
                raise FieldError(f"{head}. It is {moved} now.")
            meant = ELSEWHERE.get(key, "")
            meant = meant if path in SECTIONS else meant.rpartition(".")[2]
            if meant and (path in SECTIONS or meant in legal):
                raise FieldError(f"{head}. Did you mean {meant!r}? Legal: {', '.join(legal)}.")
            raise FieldError(listed(f"{head};", key, legal))


def renamed(table: Any, path: str) -> Any:
    """Return a table with the current names of its keys; an old name warns."""
    if not isinstance(table, Mapping):
        return table
    for key in table:
        if (now := RENAMED.get(f"{path}.{key}")) and now not in table:
            warnings.warn(f"{path}.{key} is now {path}.{now}.", FutureWarning, stacklevel=2)
            table = {(now if name == key else name): value for name, value in table.items()}
    return table


def read_table(cls: type, table: Any, path: str, given: Mapping[str, Any] | None = None) -> Any:
    """Build dataclass `cls` from a TOML table; fields in `given` are not checked.

    Raises SpecError, which names `path`.key, the fault and the legal values.
    """
    given, table = given or {}, renamed(table, path)
    fields = {item.name: item for item in dataclasses.fields(cls)}
    check_keys(table, tuple(fields), path)
    values = dict(given)
    for name, item in fields.items():
        if name in given:
            continue
        if name in table:
            values[name] = check_value(item.metadata, table[name], f"{path}.{name}")
        elif item.default is REQUIRED and item.default_factory is REQUIRED:
            raise SpecError(f"{path}.{name}: missing; the table needs {', '.join(required(cls))}.")
    return cls(**values)


@cache
def required(cls: type) -> tuple[str, ...]:
    """Return the fields of a dataclass without a default."""
    return tuple(
        item.name
        for item in dataclasses.fields(cls)
        if item.default is REQUIRED and item.default_factory is REQUIRED
    )


def check_value(meta: Mapping[str, Any], value: Any, path: str) -> Any:
    """Return `value` in SI units if the field's declaration allows it; raises SpecError."""
    kind = meta.get("kind")
    if kind in ("number", "whole"):
        return _check_number(meta, value, path)
    if kind == "choice":
        legal = meta["options"]
        if isinstance(value, str):
            value = meta["also"].get(value, value)
        if not isinstance(value, str) or value not in legal:
            raise FieldError(listed(f"{path} = {value!r}:", value, legal))
        return value
    if kind == "flag":
        if not isinstance(value, bool):
            raise FieldError(f"{path} = {value!r}: legal: true, false.")
        return value
    if not isinstance(value, str):
        raise FieldError(f"{path} = {value!r}: expected text in quotes.")
    return value


def _check_number(meta: Mapping[str, Any], value: Any, path: str) -> Any:
    unit, least, most = meta["unit"], meta["least"], meta["most"]
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        array = value
    elif isinstance(value, np.generic):
        return _check_number(meta, value.item(), path)
    elif isinstance(value, list | tuple):
        raise FieldError(
            f"{path} = {value!r}: expected one number; for several: np.array({value!r})."
        )
    else:
        number = parse_quantity(value, unit, path)
        if SMALLEST <= number <= GREATEST and least <= number <= most:  # nearly all numbers
            if meta["kind"] != "whole":
                return number
            if number.is_integer():
                return int(number)
        array = np.asarray(number)
    wrong = ~((array >= least) & (array <= most))
    if meta["positive"]:
        wrong |= array == 0
    if meta["kind"] == "whole":
        wrong |= (array != np.floor(array)) | np.isinf(array)
    else:
        wrong |= (array != 0) & (np.abs(array) < SMALLEST) & (not meta["tiny"])
        wrong |= (np.abs(array) > GREATEST) & ~(np.isinf(array) & meta["infinite"])
    if wrong.any():
        bad = float(np.extract(wrong, array)[0])
        raise FieldError(f"{path} = {_shown(bad, unit)}: {_range(meta)}{_beyond(meta, bad)}.")
    if isinstance(value, np.ndarray):
        return value.astype(np.int64 if meta["kind"] == "whole" else np.float64)
    return int(array) if meta["kind"] == "whole" else float(array)


def _shown(value: float, unit: str) -> str:
    if value and not SMALLEST <= abs(value) <= GREATEST:
        return f"{value!r} {unit}".rstrip()
    return format_quantity(float(value), unit) if unit else f"{value:g}"


def _beyond(meta: Mapping[str, Any], value: float) -> str:
    """Return the legal magnitudes, if the magnitude is wrong."""
    if meta["kind"] == "whole" or value == 0 or SMALLEST <= abs(value) <= GREATEST:
        return ""
    unit = f" {meta['unit']}".rstrip()
    return f"; its magnitude, if not 0, is {SMALLEST:g} to {GREATEST:g}{unit}{' or infinite' * meta['infinite']}"


def _range(meta: Mapping[str, Any]) -> str:
    what = "a whole number" if meta["kind"] == "whole" else "a number"
    bounds = f"of at least {_shown(meta['least'], meta['unit'])}"
    if meta["positive"] and meta["least"] == 0:
        bounds = "above 0"
    if math.isfinite(meta["most"]):
        bounds += f" and at most {_shown(meta['most'], meta['unit'])}"
    return f"legal: {what} {bounds}"


def resolve(kind: str, value: Any, path: str, needed: Collection[str]) -> dict[str, Any]:
    """Return the full table behind `value`: a catalog name, a table with a name and overrides, or a complete table.

    A table with every key in `needed` is complete, and may have a name of its own.
    """
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        raise SpecError(f"{path} = {value!r}: expected a name from the catalog or a table.")
    table = dict(value)
    name = table.get("name")
    lacking = [key for key in needed if key not in table]
    own = isinstance(name, str) and name not in catalog.names(kind) and not lacking
    if "name" not in table or own:
        return table
    begun = lacking if len(table) > 1 else []
    return merge(catalog.body(kind, table["name"], f"{path}.name", begun), table)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by the entries of `over`, table by table; a sub-table with a name replaces."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, str) and isinstance(value, Mapping) and "name" not in value:
            value = {"name": old, **value}
        elif isinstance(old, Mapping) and isinstance(value, Mapping) and "name" not in value:
            value = merge(old, value)
        merged[key] = value
    return merged


def to_table(noun: Any) -> dict[str, Any]:
    """Return a dataclass as nested plain dicts of SI values, without fields that are None."""
    table: dict[str, Any] = {}
    for item in dataclasses.fields(noun):
        value = getattr(noun, item.name)
        if value is None:
            continue
        table[item.name] = _plain(value, item.metadata.get("unit", ""))
    return table


def _plain(value: Any, unit: str) -> Any:
    if dataclasses.is_dataclass(value):
        return to_table(value)
    if isinstance(value, Mapping):
        return {key: _plain(entry, unit) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry, unit) for entry in value]
    if isinstance(value, float) and unit:
        return readable(value, unit)
    return value


@lru_cache(maxsize=4096, typed=True)  # tables have the same quantities again and again
def readable(value: float, unit: str) -> Any:
    """Return the quantity as text with a prefix if that parses to the same number, else the number."""
    shown = format_quantity(value, unit, digits=9).replace("µ", "u")
    try:
        return shown if parse_quantity(shown, unit) == value else value
    except SpecError:
        return value


def difference(table: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `table` that differ from `base`: the overrides of a catalog entry."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        old: Any = base.get(key)
        if (
            isinstance(value, Mapping)
            and isinstance(old, Mapping)
            and value.get("name") == old.get("name")
        ):
            inner = difference(value, old)
            if "name" in value and not old.keys() <= value.keys():
                found[key] = value  # an override was removed: the name resets the table
            elif inner:
                found[key] = inner
        elif key not in base or not _equal(value, old):
            found[key] = value
    return found


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, _SCALAR) and isinstance(other, _SCALAR):
        return bool(one == other)
    return bool(np.array_equal(one, other))


def nearest_field(key: str, nouns: Mapping[str, Any]) -> str:
    """Return the field meant by one without its section, such as nodes, or misspelled; else the nearest section."""
    sections = [*nouns, "strategy"]  # the last one wins: machine.nodes is how many there are
    fields = {
        field: f"{name}.{field}"
        for name in sections
        for field in getattr(nouns[name], "__dataclass_fields__", ())
    }
    fields |= ELSEWHERE
    near = nearest(key, [*fields, *sections], 0.75)
    return fields.get(near, f"{near}.") if near else ""
