"""A machine from outputs of other tools: fitted numbers, stated ones, a base for the rest, and a source for each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from lib_dlhpc.calibration.imported_fit import Ends, Fitted, fit_times
from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.measurements import File, Note, Timed, Value, measurements_of
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.machine import Machine, field_of, read_machine
from lib_dlhpc.spec.schema import check_value, merge
from lib_dlhpc.spec.units import format_quantity

LINKS = ("intra_node", "inter_node")
NAMED = ("device", "host_link", *LINKS)  # parts that a name of the catalog can stand for
NEEDED = ("device", "nodes", "devices_per_node", "nics")  # a default would be a guess
NAME = re.compile(r"[A-Za-z0-9_-]+")  # of a storage tier
# What mpirun and srun put before a line of a rank's output.
TAG = re.compile(r"^(?:\[\d+,\d+\](?:<\w+>)?:|\d+: )", re.MULTILINE)
GIVEN = "given by --set"
INCLUDED = "the measured bandwidth includes it"


@dataclass(frozen=True)
class ImportedMachine:
    """A machine, its table, the origin of each number of files or of --set, and 90% intervals of those measured.

    origins, intervals: by dotted name below the machine; all other numbers are of `base`.
    """

    machine: Machine
    table: Mapping[str, Any]
    origins: Mapping[str, str]
    intervals: Mapping[str, Ends]
    notes: tuple[str, ...]
    base: str


def import_machine(
    files: Sequence[File], base: str = "", changes: Mapping[str, Any] | None = None
) -> ImportedMachine:
    """Return the machine that the files describe.

    base: a machine of the catalog, for what no file says. changes: numbers by dotted name, which win over both.
    Raises SpecError for a file that cannot be read, for files that state different values, and, in one error, for
    all that is missing.
    """
    changes = {key.removeprefix("machine."): value for key, value in (changes or {}).items()}
    read = [each for file in files for each in measurements_of(file)]
    notes = [each.text for each in read if isinstance(each, Note)]
    times = [each for each in read if isinstance(each, Timed)]
    stated = _stated([each for each in read if isinstance(each, Value) and each.key not in changes])
    start = _start(base, changes)
    known = merge(merge(start, _imported(stated, ())), nested(changes))
    if any(each.links > 1 for each in times) and "nics" not in known:
        raise _missing(["nics"], base, notes)
    nics = check_value(field_of("nics"), known.get("nics", 1), "nics")
    own = frozenset(name for name, tier in _tiers(known) if tier.get("scope") == "node")
    found, said = fit_times(times, nics, own)
    fitted = [each for each in found if each.key not in changes]
    table = merge(merge(start, _imported(stated, fitted)), nested(_numbers(changes)))
    if missing := _lacking(table):
        raise _missing(missing, base, [*said, *notes])
    intervals = {each.key: each.ends for each in fitted if each.repeated}
    table["measured"] = {
        "date": date.today().isoformat(),
        "host": ", ".join(dict.fromkeys(file.name for file in files)),
        "complete": True,
        "intervals": {key: list(ends) for key, ends in intervals.items()},
    }
    said += [
        f"{name} is taken as shared by all nodes; --set {name}.scope=node if each node has its own."
        for name, tier in _tiers(table)
        if "scope" not in tier
    ]
    machine = read_machine(table)
    origins = _origins(stated, fitted, changes)
    return ImportedMachine(machine, table, origins, intervals, (*said, *notes), base)


def _tiers(table: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return storage tiers by dotted name."""
    tiers = table.get("storage", {})
    if not isinstance(tiers, Mapping) or not all(isinstance(t, Mapping) for t in tiers.values()):
        raise SpecError(f"storage = {tiers!r}: expected a table for each tier.")
    return [(f"storage.{name}", tier) for name, tier in tiers.items()]


def _start(base: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the files are put over: the base, with the devices and links that --set names."""
    entry = {"name": base, **catalog.body("machines", base, "--base")} if base else {}
    return merge(entry, {key: value for key, value in changes.items() if key in NAMED})


def _numbers(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in changes.items() if key not in NAMED}


def _stated(values: Sequence[Value]) -> dict[str, Value]:
    """Return the values by key; raises SpecError if two files state different ones."""
    found: dict[str, Value] = {}
    for value in values:
        other = found.setdefault(value.key, value)
        if other.value != value.value:
            raise SpecError(
                f"{value.key} = {other.value!r} ({other.source}), and {value.value!r} ({value.source}): leave out one"
                f" of the files, or decide with --set {value.key}=VALUE."
            )
    return found


def _imported(stated: Mapping[str, Value], fitted: Sequence[Fitted]) -> dict[str, Any]:
    """Return what the files say as a table. A measured bandwidth is what is reached, so its efficiency is 1."""
    numbers = {key: each.value for key, each in stated.items()}
    numbers |= {each.key: each.value for each in fitted}
    numbers |= {f"{link}.efficiency": 1.0 for link in LINKS if f"{link}.bandwidth" in numbers}
    return nested(numbers)


def nested(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables of dotted names; a device or a link by name comes before its numbers."""
    found: dict[str, Any] = {}
    for key, value in sorted(numbers.items(), key=lambda each: each[0].count(".")):
        *parents, last = key.split(".")
        place = found
        for parent in parents:
            inner = place.get(parent, {})
            if not isinstance(inner, str | Mapping):
                raise SpecError(f"{key}: {parent} = {inner!r} has no parts.")
            place[parent] = {"name": inner} if isinstance(inner, str) else inner
            place = place[parent]
        place[last] = value
    return found


def _lacking(table: Mapping[str, Any]) -> list[str]:
    """Return the dotted names of numbers without which a machine is a guess."""
    found = [key for key in NEEDED if key not in table]
    for link in LINKS:
        kept = table.get(link, {})
        named = not isinstance(kept, Mapping) or "name" in kept
        known = {"latency", "bandwidth"} if named else kept
        found += [f"{link}.{key}" for key in ("latency", "bandwidth") if key not in known]
    if isinstance(device := table.get("device", ""), Mapping) and "name" not in device:
        needed = ("memory", "memory_bandwidth", "idle_power", "busy_power", "peak")
        found += [f"device.{key}" for key in needed if key not in device]
    return found + [f"{name}.bandwidth" for name, tier in _tiers(table) if "bandwidth" not in tier]


def _missing(keys: Sequence[str], base: str, notes: Sequence[str]) -> SpecError:
    said = "".join(f"\n  {note}" for note in notes)
    if base:
        source, ways = f"neither a file nor {base} says", "give them"
    else:
        source, ways = (
            "no file says",
            "name the nearest machine of the catalog with --base, or give them",
        )
    return SpecError(f"{source} {', '.join(keys)}; {ways}, as in --set {keys[0]}=VALUE.{said}")


def _origins(
    stated: Mapping[str, Value], fitted: Sequence[Fitted], changes: Mapping[str, Any]
) -> dict[str, str]:
    found = {
        key: f"{each.source}{f', {each.note}' if each.note else ''}" for key, each in stated.items()
    }
    for each in fitted:
        unit = field_of(each.key)["unit"]
        low, high = (format_quantity(end, unit) for end in each.ends)
        repeats = f"{low} to {high}" if each.repeated else "one repeat: no interval"
        found[each.key] = f"{repeats}; {'; '.join(map(str, each.sources))}"
        if each.key.endswith("_node.bandwidth"):
            found[each.key.replace("bandwidth", "efficiency")] = INCLUDED
    return found | dict.fromkeys(changes, GIVEN)


def read_files(named: Sequence[tuple[str, str]]) -> list[File]:
    """Return files from (PART=NAME or NAME, text); PART is LINK, LINK:RANKS, storage.TIER or device."""
    found = []
    for argument, text in named:
        part, name = split_part(argument)
        part, _, ranks = part.partition(":")
        if part.startswith("storage.") and not NAME.fullmatch(part.removeprefix("storage.")):
            raise SpecError(f"{argument}: a storage tier has a name of letters, digits, - and _.")
        if ranks and not (ranks.isdigit() and int(ranks) > 1):
            raise SpecError(f"{argument}: {ranks!r}: expected a number of ranks above 1.")
        found.append(File(name, TAG.sub("", text), part, int(ranks or 0)))
    return found


def split_part(argument: str) -> tuple[str, str]:
    """Return part and name of PART=NAME; the part is "" where NAME only contains an equals sign."""
    part, equals, name = argument.partition("=")
    known = part.partition(":")[0] in (*LINKS, "device") or part.startswith("storage.")
    return (part, name) if equals and known else ("", argument)
