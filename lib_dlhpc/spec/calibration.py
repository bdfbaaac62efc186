"""Calibration: rates measured on a machine that replace predicted ones, and the changes that invalidate them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.machine import read_machine
from lib_dlhpc.spec.schema import number, whole
from lib_dlhpc.spec.strategy import NARROW

if TYPE_CHECKING:
    from lib_dlhpc.spec.experiment import Experiment


@dataclass(frozen=True)
class Calibration:
    """Rates measured on this machine.

    `rate` belongs to the experiment's own network. `compute_scale` and `link_efficiency` come from a
    measured run of another network or another split; prediction/measured/calibrated.py derives them. A change between
    bf16, fp8 and nvfp4 retains `compute_scale`: all but linear layers is in bf16 before and after, and a run with
    a measured ratio beside one without would compare two calibrations, not two precisions.
    """

    rate: float = number(default=0.0)  # samples/s of `devices` devices; 0: not measured
    devices: int = whole(default=1)
    batch: int = whole(default=0, least=0)  # per device; 0: the strategy's
    compute_scale: float = number(default=0.0)  # measured over roofline compute time; 0: not known
    # Fraction of the inter-node line rate that collectives reach; 0: the link's own efficiency.
    link_efficiency: float = number(default=0.0, most=1.0, divides=True)


_PRECISION = "strategy.precision"
# The fields on which each measured number depends; a change of one invalidates it ...
_DEVICE = r"machine\.(name$|device$|device\.(?!(reserved_)?memory$|(idle|busy)_power$))|strategy\.precision$"
_MEASURED_WITH = {
    "rate": rf"model\.|{_DEVICE}",
    "compute_scale": _DEVICE,
    "link_efficiency": r"machine\.(name$|nics$|inter_node(\.|$))",
}
# ... and this replaces it.
_INSTEAD = {
    "rate": "compute time is the roofline's estimate",
    "compute_scale": "compute time is the roofline's estimate",
    "link_efficiency": "communication uses the link efficiency of the catalog",
}

_SCALED_ALIKE = {"bf16", *NARROW}  # precisions between which a change retains compute_scale


def check_calibration(calibration: Calibration) -> None:
    """Raise SpecError where two measured numbers contradict each other."""
    if np.any(calibration.rate) and np.any(calibration.compute_scale):
        raise SpecError(
            f"calibration.compute_scale = {calibration.compute_scale:g} and calibration.rate ="
            f" {calibration.rate:g}: both set the compute time; legal: one of them."
        )


def after_change(before: "Experiment", after: "Experiment", changes: Iterable[str]) -> "Experiment":
    """Return `after` without the measured numbers that `changes` (dotted fields) invalidated, with warnings."""
    invalid: dict[str, tuple[Any, str]] = {}
    for name, depends in _MEASURED_WITH.items():
        if not np.any(getattr(after.calibration, name)):
            continue
        keys = {key: _differs(before, after, key) for key in changes if re.match(depends, key)}
        keys = {key: where for key, where in keys.items() if np.any(where)}
        if name == "compute_scale" and set(keys) == {_PRECISION} and _scaled_alike(before, after):
            after = _with_warning(after, _retained(before, after))
        elif keys:
            where = reduce(np.logical_or, keys.values())
            invalid[name] = where, _change(before, after, list(keys))
    return _without(after, invalid) if invalid else after


def _scaled_alike(before: "Experiment", after: "Experiment") -> bool:
    """Whether the ratio of measured to roofline time is that of both precisions."""
    return {before.strategy.precision, after.strategy.precision} <= _SCALED_ALIKE


def _retained(before: "Experiment", after: "Experiment") -> str:
    scale, old, new = (
        before.calibration.compute_scale,
        before.strategy.precision,
        after.strategy.precision,
    )
    shown = f"{scale:g}" if np.ndim(scale) == 0 else "an array"
    return (
        f"calibration.compute_scale = {shown} is retained from {_PRECISION} = {old!r} to"
        f" {new!r}: only linear layers differ."
    )


def _with_warning(experiment: "Experiment", words: str) -> "Experiment":
    return replace(experiment, warnings=(*experiment.warnings, words))


def without(experiment: "Experiment", why: str) -> "Experiment":
    """Return the experiment without measured numbers, with a warning for each that it had."""
    return _without(experiment, dict.fromkeys(_MEASURED_WITH, (True, why)))


def moved(there: "Experiment", tables: Mapping[str, Any]) -> "Experiment":
    """Return the experiment of a file's `tables` on a machine, without numbers measured on another, with warnings."""
    machine = tables.get("machine")
    if machine is not None and read_machine(machine) == there.machine:
        return there
    return without(there, f"it was not measured on {there.machine.name}")


def _without(experiment: "Experiment", invalid: Mapping[str, tuple[Any, str]]) -> "Experiment":
    """invalid: where each field of [calibration] does not hold, True or a boolean array, and the reason."""
    measured, warnings, valid = experiment.calibration, list(experiment.warnings), dict[str, Any]()
    for name, (where, why) in invalid.items():
        value = getattr(measured, name)
        if np.any(value):
            shown = f"{value:g}" if np.ndim(value) == 0 else "an array"
            warnings.append(f"calibration.{name} = {shown} is dropped: {why}; {_INSTEAD[name]}.")
        valid[name] = np.where(where, 0.0, value)[()]
        if name == "rate":
            valid["devices"] = np.where(where, 1, measured.devices)[()]
            valid["batch"] = np.where(where, 0, measured.batch)[()]
    return replace(experiment, calibration=replace(measured, **valid), warnings=tuple(warnings))


def _differs(before: "Experiment", after: "Experiment", key: str) -> Any:
    """Whether a change of the dotted field `key` changed the model, machine, device, link or value.

    For numbers, a boolean array: a sweep retains the measurement where the value is unchanged.
    """
    old, new = (_leaf(experiment, key) for experiment in (before, after))
    if all(isinstance(value, int | float | np.ndarray) for value in (old, new)):
        return np.not_equal(old, new)
    one, other = (_part(experiment, key) for experiment in (before, after))
    if is_dataclass(one) and not key.startswith("model."):
        return not _alike(one, other)
    return bool(one != other)


def _alike(one: Any, other: Any) -> bool:
    """Whether two machines, or parts of them, are equal in all fields; they may hold arrays."""
    if one is other:
        return True
    if is_dataclass(one):
        names = [field.name for field in fields(one)]
        return type(one) is type(other) and all(
            _alike(getattr(one, name), getattr(other, name)) for name in names
        )
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    return np.array_equal(one, other)


def _part(experiment: "Experiment", key: str) -> Any:
    """Return the owner of the dotted field: the model, the machine, one part of the machine, or the value."""
    section, name, *_ = key.split(".")
    noun = getattr(experiment, section)
    return noun if section == "model" or name == "name" else getattr(noun, name)


def _change(before: "Experiment", after: "Experiment", keys: list[str]) -> str:
    """Describe the change, such as: it was measured with model.name = 'resnet50', not 'vgg16'."""
    found = []
    for key in keys:
        old, new = (_value(experiment, key) for experiment in (before, after))
        plain = None not in (old, new) and old != new
        found.append(f"{key} = {old!r}, not {new!r}" if plain else f"a different {key}")
    return f"it was measured with {', '.join(found)}"


def _value(experiment: "Experiment", key: str) -> Any:
    """Return the name or number at a dotted field; None where it is neither."""
    found = _leaf(experiment, key)
    found = getattr(found, "name", found)
    return found if isinstance(found, str | int | float) else None


def _leaf(experiment: "Experiment", key: str) -> Any:
    """Return what is at a dotted field; None where there is nothing of that name."""
    found: Any = experiment
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
    return found
