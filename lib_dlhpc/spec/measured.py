"""Measured: host, date, software versions and confidence intervals of a calibrated machine.

`dlhpc calibrate` writes it. A calibrated machine overrides the measured parameters of an experiment's machine
(measured_on); all others, such as a memory limit, stay as the experiment sets them. The user's own calibration is
stored in default_path(), for experiments whose machine is "laptop": the catalog's stand-in for this machine.
"""

import math
import os
import platform
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lib_dlhpc.spec.errors import SpecError, suggest
from lib_dlhpc.spec.schema import check_keys, check_value, number
from lib_dlhpc.spec.units import count, format_quantity

if TYPE_CHECKING:
    from lib_dlhpc.spec.machine import Machine

STAND_IN = "laptop"  # the catalog machine that a calibrated one replaces
OLD = 30  # days after which a calibration is stale
LARGEST_FILE = 100_000  # bytes; a real one is a few kilobytes
PACKAGES = (
    "numpy",
    "mpi4py",
    "mpich",
    "openmpi",
    "impi-rt",
)  # packages whose versions are recorded
ROUNDED = 1e-3  # relative; files store four digits of numbers and interval ends
# Plausible ranges: a number beyond is a mistake, not a measurement.
LIMITS = {
    "device.slowdown": (0.01, 100.0),
    "device.efficiency": (0.001, 1.0),
    "intra_node.efficiency": (0.001, 1.0),
    "inter_node.efficiency": (0.001, 1.0),
    "host_link.efficiency": (0.001, 1.0),
}
KEYS = ("date", "host", "ranks", "cores", "versions", "intervals")


@dataclass(frozen=True)
class Measured:
    """Provenance of a machine's parameters; `intervals` are 90 % confidence intervals, 5 % to 95 %.

    host: a class of machines, not a host name. intervals: by dotted name below the machine, such as
    "device.half_work" or "intra_node.latency", in SI units; every parameter named there was measured.
    """

    date: str
    host: str
    ranks: int
    cores: int
    versions: Mapping[str, str]
    intervals: Mapping[str, tuple[float, float]]


def read_measured(table: Any, path: str = "machine.measured") -> Measured:
    """Build a Measured from its TOML table; raises SpecError."""
    check_keys(table, KEYS, path)
    for key in KEYS:
        if key not in table:
            raise SpecError(f"{path}.{key}: missing; the table needs {', '.join(KEYS)}.")
    for key in ("date", "host"):
        if not isinstance(table[key], str):
            raise SpecError(f"{path}.{key} = {table[key]!r}: expected text in quotes.")
    try:
        date.fromisoformat(table["date"])
    except ValueError:
        raise SpecError(
            f"{path}.date = {table['date']!r}: expected a day such as '2026-01-31'."
        ) from None
    for key in ("ranks", "cores"):
        if type(table[key]) is not int or table[key] < 1:
            raise SpecError(f"{path}.{key} = {table[key]!r}: legal: a whole number above 0.")
    versions, intervals = table["versions"], table["intervals"]
    for key, entries in (("versions", versions), ("intervals", intervals)):
        if not isinstance(entries, Mapping):
            raise SpecError(f"{path}.{key} = {entries!r}: expected a table.")
    for key, entry in versions.items():
        if not isinstance(entry, str):
            raise SpecError(f"{path}.versions.{key} = {entry!r}: expected text in quotes.")
    return Measured(
        table["date"],
        table["host"],
        table["ranks"],
        table["cores"],
        dict(versions),
        {key: _interval(key, ends, f"{path}.intervals") for key, ends in intervals.items()},
    )


def _interval(key: str, ends: Any, path: str) -> tuple[float, float]:
    meta = field_of(key, path)
    where = f'{path}."{key}"'
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise SpecError(f"{where} = {ends!r}: expected two ends, such as [1.5, 2.5].")
    low, high = (float(check_value(meta, end, where)) for end in ends)
    if not low <= high < math.inf:
        raise SpecError(f"{where} = {list(ends)!r}: expected the lower end first, and no infinity.")
    return low, high


def field_of(key: str, path: str = "intervals") -> Mapping[str, Any]:
    """Return the declaration of a field of Machine by dotted name: its unit and range.

    Raises SpecError if a machine has no such number.
    """
    from lib_dlhpc.spec.machine import PRECISIONS, Device, Link, Machine, StorageTier

    inside = {"device": Device, "intra_node": Link, "inter_node": Link, "host_link": Link}
    *parents, last = key.split(".")
    if parents == ["device", "peak"] and last in PRECISIONS:
        return dict(number("FLOP/s", positive=True).metadata)
    cls: Any = Machine if not parents else inside.get(".".join(parents))
    if len(parents) == 2 and parents[0] == "storage":
        cls = StorageTier
    found = {item.name: item.metadata for item in fields(cls)} if cls else {}
    legal = [name for name, meta in found.items() if meta.get("kind") in ("number", "whole")]
    if last not in legal:
        known = [".".join([*parents, name]) for name in legal] or ["jitter", "device.efficiency"]
        raise SpecError(
            f'{path}."{key}": a machine has no such number; legal: {", ".join(known)}.'
            f"{suggest(key, known)}"
        )
    return found[last]


def load_measured(path: str | Path) -> "Machine":
    """Return the machine in a file written by `dlhpc calibrate`.

    Raises SpecError if the file cannot be read, is not a calibration, lacks its provenance, or holds a number
    outside its own interval or LIMITS.
    """
    from lib_dlhpc.spec.experiment import SECTIONS
    from lib_dlhpc.spec.machine import read_machine

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
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: not valid TOML: {error}.") from None
    if machine.measured is None:
        raise SpecError(
            f"{path}: [machine.measured] is missing: `dlhpc calibrate --out FILE` writes it."
        )
    return machine


def _check_believable(machine: "Machine") -> None:
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


def value_of(machine: "Machine", key: str) -> float:
    """Return the number of a machine with this dotted name; raises KeyError if there is none."""
    value: Any = machine
    for name in key.split("."):
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return float(value)


def default_path() -> Path:
    """Return the path of the user's own calibration; it may not exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "dlhpc" / "machine.toml"


def default_machine() -> "Machine | None":
    """Return the user's own calibration; None if there is none. Raises SpecError for an invalid one."""
    path = default_path()
    return load_measured(path) if path.exists() else None


def measured_on(machine: "Machine", measured: "Machine") -> "Machine":
    """Return `machine` with the measured parameters of `measured`, and no others.

    These are parameters with an interval, layer rates, and asynchronous progress.
    """
    if measured.measured is None:
        raise SpecError("The machine has no measured numbers.")
    for key in measured.measured.intervals:
        machine = _with(machine, measured, key.split("."))
    device = replace(machine.device, layers=measured.device.layers)
    return replace(machine, device=device, progress=measured.progress, measured=measured.measured)


def slowed(machine: "Machine", work: float, calls: float) -> "Machine":
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


def foreign(machine: "Machine") -> list[str]:
    """Return the reasons why a calibration may not hold on this machine today; empty: it holds."""
    measured = machine.measured
    if measured is None:
        return ["The machine's numbers were not measured; `dlhpc calibrate` measures this machine."]
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
    here = versions()
    found += [
        f"It was measured with {name} {measured.versions.get(name, '(none)')}; installed:"
        f" {here.get(name, '(none)')}."
        for name in sorted({*here, *measured.versions})
        if here.get(name) != measured.versions.get(name)
    ]
    return found


@cache
def host_class() -> str:
    """Return the class of this machine, such as "Linux x86_64, 8 cores, AMD EPYC 7B13"; not its host name."""
    words = [f"{platform.system()} {platform.machine()}", count(cores(), "core")]
    return ", ".join([*words, *filter(None, [_processor()])])


def cores() -> int:
    """Return the number of cores available to a process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """Return the processor's model, empty if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor()
    named = [line.partition(":")[2] for line in lines if line.startswith("model name")]
    return " ".join(named[0].split()) if named else platform.processor()


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of PACKAGES."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
