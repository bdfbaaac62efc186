"""Planning: what is asked of a plan of an experiment: objectives, limits, and the values that fields may have."""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from lib_dlhpc.errors import SpecError, listed
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.schema import check_keys, check_value, number, read_table, whole
from lib_dlhpc.spec.strategy import Strategy
from lib_dlhpc.spec.training import Training

OBJECTIVES = ("time", "energy", "cost")
VARIED = (  # fields of the strategy that a plan varies by default (planner/search_space.py)
    *("tensor", "pipeline", "spatial", "context", "sequence_parallel"),
    *("microbatches", "schedule", "chunks", "zero", "recompute"),
)
AXES = (  # and others that it may vary; experts by default where there are any
    *VARIED,
    *("experts", "expert_exchange", "shards", "gather", "zero_unit", "offload", "allreduce"),
    *("nodes", "overlap", "bucket", "power_limit", "tensor_pieces", "stage_cut"),
)
SETTINGS = {  # that change accuracy: varied only where that was measured (planner/training_runs.py)
    **{name: f"strategy.{name}" for name in ("precision", "wire", "expert_wire", "local_steps")},
    **{
        name: f"training.{name}"
        for name in ("sparsity", "low_rank", "outer_rate", "outer_momentum")
    },
}
FIELDS = {item.name: item.metadata for noun in (Training, Strategy) for item in fields(noun)}


@dataclass(frozen=True)
class Limits:
    """The most of each; None: no limit."""

    time: float | None = number("s", default=None, positive=True)  # to train
    energy: float | None = number("J", default=None, positive=True)  # to train
    cost: float | None = number(default=None, positive=True)  # device-hours
    memory: float | None = number("B", default=None, positive=True)  # of the fullest device


@dataclass(frozen=True)
class Bounds:
    """Bounds of the default values of a field; None: no bound."""

    least: float | None = None
    most: float | None = None


Axes = Mapping[str, tuple[Any, ...] | Bounds]


@dataclass(frozen=True)
class Planning:
    """What is asked of a plan.

    objectives: time, energy or cost; several for a Pareto front, of which the first orders the search. limits: the most
    of each. axes: for a field of the strategy, its values, or bounds of the default ones; also for settings
    that change accuracy. predictions: the most. batch:
    global batches to choose from; none given, that of the experiment.
    """

    objectives: tuple[str, ...] = ("time",)
    limits: Limits = Limits()
    axes: Axes = field(default_factory=dict)
    predictions: int = whole(default=2000)
    batch: tuple[int, ...] = ()


def read_planning(value: Any, path: str = "plan") -> Planning:
    """Build a Planning from a TOML table, such as {"objectives": ["time"], "axes": {"tensor": [1, 2]}}.

    Raises SpecError, which names the value and the legal ones.
    """
    table = {} if value is None else value
    check_keys(table, tuple(item.name for item in fields(Planning)), path)
    given = {
        "objectives": _objectives(table.get("objectives", ["time"]), f"{path}.objectives"),
        "limits": read_table(Limits, table.get("limits", {}), f"{path}.limits"),
        "axes": _axes(table.get("axes", {}), f"{path}.axes"),
        "batch": _batches(table.get("batch", ()), f"{path}.batch"),
    }
    found: Planning = read_table(Planning, table, path, given)
    return found


def overridden(planning: Planning, **given: Any) -> Planning:
    """Return a planning with fields replaced, limits and axes one by one; None keeps a field. Raises SpecError."""
    table = {item.name: getattr(planning, item.name) for item in fields(Planning)}
    table["limits"] = {k: v for k, v in vars(planning.limits).items() if v is not None}
    for name, value in given.items():
        if value is not None:
            table[name] = {**table[name], **value} if isinstance(value, Mapping) else value
    return read_planning(table)


def _objectives(value: Any, path: str) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise SpecError(f"{path} = {value!r}: expected at least one of {', '.join(OBJECTIVES)}.")
    for name in names:
        if name not in OBJECTIVES:
            raise SpecError(listed(f"{path}: {name!r}:", name, OBJECTIVES))
    return tuple(dict.fromkeys(names))


def _batches(value: Any, path: str) -> tuple[int, ...]:
    values = value if isinstance(value, list | tuple) else (value,)
    for each in values:
        if isinstance(each, bool) or not isinstance(each, int) or each < 1:
            raise SpecError(f"{path}: {each!r}: expected whole numbers of samples, at least 1.")
    return tuple(dict.fromkeys(values))


def _axes(table: Any, path: str) -> Axes:
    check_keys(table, (*AXES, *SETTINGS), path)
    return {name: _axis(name, value, f"{path}.{name}") for name, value in table.items()}


def _axis(name: str, value: Any, path: str) -> tuple[Any, ...] | Bounds:
    if isinstance(value, Bounds):
        return value
    if isinstance(value, Mapping):
        return _bounds(name, value, path)
    values = (value,) if isinstance(value, str) or not hasattr(value, "__len__") else value
    if not len(values):
        raise SpecError(f"{path} = {value!r}: expected at least one value.")
    return tuple(dict.fromkeys(check_value(FIELDS[name], value, path) for value in values))


def _bounds(name: str, table: Mapping[str, Any], path: str) -> Bounds:
    if name not in VARIED or FIELDS[name]["kind"] != "whole":
        raise SpecError(f"{path} = {dict(table)!r}: bounds need default values; list the values.")
    check_keys(table, tuple(item.name for item in fields(Bounds)), path)
    read = {key: check_value(FIELDS[name], each, f"{path}.{key}") for key, each in table.items()}
    found = Bounds(**read)
    if found.least is not None and found.most is not None and found.least > found.most:
        raise SpecError(f"{path}.least = {found.least}: legal: up to {path}.most = {found.most}.")
    return found
