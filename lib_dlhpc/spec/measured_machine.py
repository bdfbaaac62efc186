"""A calibrated machine in a file: read and checked, put over an experiment's machine, compared with this one.

`dlhpc calibrate` writes it. It overrides the measured parameters of an experiment's machine (measured_on); all
others, such as a memory limit, stay as the experiment sets them. A file of `dlhpc import machine` has a whole
machine. The user's own calibration is stored in default_path(), for experiments whose machine is "laptop": the
catalog's stand-in for this machine.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from lib_dlhpc.errors import SpecError, nearest
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.host import host_class, kernels, versions
from lib_dlhpc.spec.machine import Machine, field_of, read_machine
from lib_dlhpc.spec.schema import SECTIONS, check_keys
from lib_dlhpc.spec.units import count, format_quantity

STAND_IN = "laptop"  # the catalog machine that a calibrated one replaces
OLD = 30  # days after which a calibration is stale
LARGEST_FILE = 100_000  # bytes; a real one is a few kilobytes
ROUNDED = 1e-3  # relative; files store four digits of numbers and interval ends
WIDE = ("fp64", "fp32")  # formats in which processor cores compute with numpy
# Plausible ranges: a number beyond is a mistake, not a measurement.
LIMITS = {
    "device.slowdown": (0.01, 100.0),
    "device.efficiency": (0.001, 1.0),
    "intra_node.efficiency": (0.001, 1.0),
    "inter_node.efficiency": (0.001, 1.0),
    "host_link.efficiency": (0.001, 1.0),
}


def load_measured(path: str | Path) -> Machine:
    """Return the machine in a file written by `dlhpc calibrate` or `dlhpc import machine`.

    Raises SpecError if the file cannot be read, is not a calibration, lacks its provenance, or holds a number
    outside its own interval or LIMITS.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise SpecError(f"longer than {LARGEST_FILE:,} bytes, too long for a calibration.")
        tables = tomllib.loads(data.decode("utf-8"))
        if others := [f"[{name}]" for name in SECTIONS if name in tables and name != "machine"]:
            raise SpecError(
                f"it is an experiment, with {', '.join(others)}, and no machine that `dlhpc calibrate --out FILE`"
                " measured."
            )
        check_keys(tables, ("machine",), "calibration")
        machine = read_machine(tables.get("machine", {}))
        _check_believable(machine)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file. {_meant(str(path))}") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not valid TOML: {error}.") from None
    if machine.measured is None:
        raise SpecError(
            f"{path}: [machine.measured] is missing: `dlhpc calibrate --out FILE` writes it. To predict a model on"
            f" a machine that was not measured, write MODEL@{path}."
        )
    return machine


def _meant(name: str) -> str:
    """Return what to write instead of the name of a file that does not exist: it may be of the catalog."""
    measured = "`dlhpc calibrate --out FILE` measures this machine."
    if near := nearest(name, catalog.names("machines"), 0.6):
        return f"{measured} For {near} of the catalog, write MODEL@{near}, or --set machine.name={near}."
    return f"{measured} For another, of the catalog or a TOML file, write MODEL@NAME or MODEL@FILE."


def _check_believable(machine: Machine) -> None:
    """Raise SpecError for an unknown or implausible number."""
    intervals = machine.measured.intervals if machine.measured else {}
    for key, (low, high) in intervals.items():
        where = f'machine.measured.intervals."{key}"'
        try:
            value = value_of(machine, key)
        except KeyError:
            raise SpecError(f"{where}: the machine in the file has no machine.{key}.") from None
        if not low * (1 - ROUNDED) <= value <= high * (1 + ROUNDED):
            unit = field_of(key)["unit"]
            shown = [
                format_quantity(each, unit) if unit else f"{each:g}" for each in (value, low, high)
            ]
            raise SpecError(
                f"machine.{key} = {shown[0]}: outside its own interval, {where} = {shown[1]} to"
                f" {shown[2]}; rerun `dlhpc calibrate`."
            )
    for key, (least, most) in LIMITS.items():
        for value in (value_of(machine, key), *intervals.get(key, ())):
            if not least <= value <= most:
                raise SpecError(
                    f"machine.{key} = {value:g}, or an end of its interval: legal in a measured machine: from"
                    f" {least:g} to {most:g}."
                )


def value_of(machine: Machine, key: str) -> float:
    """Return the number of a machine with this dotted name; raises KeyError if there is none."""
    value: Any = machine
    for name in key.split("."):
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return float(value)


def default_path() -> Path:
    """Return the path of the user's own calibration; it may not exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "dlhpc" / "machine.toml"


def default_machine() -> Machine | None:
    """Return the user's own calibration; None if there is none. Raises SpecError for an invalid one."""
    path = default_path()
    return load_measured(path) if path.exists() else None


def measured_on(machine: Machine, measured: Machine) -> Machine:
    """Return `machine` with the measured parameters of `measured`, and no others.

    These are parameters with an interval, layer rates, and asynchronous progress; all, if `measured` is complete.
    Cores that were measured in WIDE formats alone have no rate in others, such as the fp8 of a GPU.
    """
    if measured.measured is None:
        raise SpecError("The machine has no measured numbers.")
    if measured.measured.complete:
        return measured
    rates = {key for key in measured.measured.intervals if key.startswith("device.peak.")}
    if rates and rates <= {f"device.peak.{each}" for each in WIDE}:
        # Named as measured: the name of a GPU would bring back its rates from the catalog.
        device = machine.device
        peak = {key: rate for key, rate in device.peak.items() if key in WIDE}
        device = replace(device, peak=peak, name=measured.device.name)
        machine = replace(machine, device=device)
    for key in measured.measured.intervals:
        machine = _with(machine, measured, key.split("."))
    device = replace(machine.device, layers=measured.device.layers)
    return replace(machine, device=device, progress=measured.progress, measured=measured.measured)


def slowed(machine: Machine, work: float, calls: float) -> Machine:
    """Return a measured machine whose compute and intra-node bandwidth terms are `work` times as slow.

    calls: slowdown factor of the fixed cost of each call and each message. Storage and the links between nodes
    are unchanged.
    """
    device, link, measured = machine.device, machine.intra_node, machine.measured
    small = calls / work  # device.slowdown applies `work` to launches as well
    layers = {
        kind: replace(
            each, launch=each.launch * small, backward_launch=each.backward_launch * small
        )
        for kind, each in device.layers.items()
    }
    device = replace(
        device,
        slowdown=device.slowdown * work,
        layers=layers,
        launch=device.launch * small,
        overhead=device.overhead * small,
    )
    link = replace(link, latency=link.latency * calls, bandwidth=link.bandwidth / work)
    if measured is not None:
        factors = {
            "device.slowdown": work,
            "device.launch": small,
            "device.overhead": small,
            "intra_node.latency": calls,
            "intra_node.bandwidth": 1 / work,
        }
        intervals = {
            key: (low * factors.get(key, 1.0), high * factors.get(key, 1.0))
            for key, (low, high) in measured.intervals.items()
        }
        measured = replace(measured, intervals=intervals)
    return replace(machine, device=device, intra_node=link, measured=measured)


def _with(over: Any, source: Any, names: list[str]) -> Any:
    """Return `over` with one number of `source`, inside dataclasses and mappings."""
    first, *rest = names
    if is_dataclass(source):
        value = getattr(source, first)
        return replace(over, **{first: _with(getattr(over, first), value, rest) if rest else value})
    value = source[first]
    return {**over, first: _with(over[first], value, rest) if rest and first in over else value}


def foreign(machine: Machine) -> list[str]:
    """Return the reasons why a calibration may not hold on this machine today; empty: it holds."""
    measured = machine.measured
    if measured is None:
        return ["The machine's numbers were not measured; `dlhpc calibrate` measures this machine."]
    if measured.complete:
        return [f"It was imported from {measured.host}; `dlhpc calibrate` measures this machine."]
    found = []
    if measured.host != host_class():
        found.append(
            f"It was measured on another machine: {measured.host}; this is {host_class()}."
        )
    days = (date.today() - date.fromisoformat(measured.date)).days
    if days > OLD:
        found.append(f"It was measured {count(days, 'day')} ago, on {measured.date}.")
    if days < 0:
        found.append(f"It was measured on {measured.date}, a date in the future.")
    here = versions() | kernels()
    found += [
        f"It was measured with {name} {measured.versions.get(name, '(none)')}; here:"
        f" {here.get(name, '(none)')}."
        for name in sorted({*here, *measured.versions})
        if here.get(name) != measured.versions.get(name)
    ]
    return found
