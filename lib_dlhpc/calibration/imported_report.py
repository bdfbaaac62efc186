"""An imported machine as commented TOML: after each number the lines that it is from, and its interval."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tomli_w

from lib_dlhpc.calibration.imported_machine import ImportedMachine
from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.machine import field_of
from lib_dlhpc.spec.units import format_quantity

DIGITS = 4


def as_toml(found: ImportedMachine) -> str:
    """Return the [machine] of an experiment, for --machine as well."""
    base = f", and of {found.base} of the catalog" if found.base else ""
    day, files = (found.table["measured"][key] for key in ("date", "host"))
    head = [
        f"Imported by `dlhpc import machine` on {day} from {files}{base}.",
        "After a measured number: its 90% interval, file, lines, tool.",
        *found.notes,
    ]
    return commented(found, head)


def commented(found: ImportedMachine, head: Sequence[str]) -> str:
    """Return the [machine] as TOML below a head of comments, each number with its origin."""
    lines = [f"# {line}" for note in head for line in note.splitlines()]
    return "\n".join([*lines, "", *_table("machine", found.table, found)]) + "\n"


def as_lines(found: ImportedMachine) -> list[str]:
    """Return a line for each number of a file or of --set."""
    shown = {key: _shown(_at(found.table, key), key) for key in found.origins}
    return [f"{key:<28}{shown[key]:>16}   {origin}" for key, origin in found.origins.items()]


def _table(path: str, table: Mapping[str, Any], found: ImportedMachine) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if len(inner) < len(table):
        yield f"[{path}]"
    for key, value in table.items():
        if key not in inner:
            dotted = f"{path}.{key}".removeprefix("machine.")
            line = tomli_w.dumps({key: _plain(value, dotted)}).rstrip()
            origin = "" if dotted.startswith("measured.") else _origin(dotted, found)
            yield f"{line}  # {origin}" if origin else line
    for key, value in inner.items():
        if len(inner) < len(table):
            yield ""
        if f"{path}.{key}" == "machine.measured":
            yield from _measured(value)
        else:
            yield from _table(f"{path}.{key}", value, found)


def _measured(table: Mapping[str, Any]) -> Iterator[str]:
    plain = {key: value for key, value in table.items() if key != "intervals"}
    yield tomli_w.dumps({"machine": {"measured": plain}}).rstrip()
    yield "\n[machine.measured.intervals]"
    for key, ends in table["intervals"].items():
        low, high = (_plain(end, key) for end in ends)
        yield f'"{key}" = [{json.dumps(low)}, {json.dumps(high)}]'


def _origin(dotted: str, found: ImportedMachine) -> str:
    """Return where a number comes from; of the base, with the source and the confidence of the catalog."""
    if dotted in found.origins:
        return found.origins[dotted]
    if not found.base:
        return "the catalog's" if dotted.endswith("name") else ""
    source = catalog.source_of(catalog.read("machines", found.base), dotted)
    return f"{found.base}: {source['from']} ({source['confidence']})" if source else found.base


def _at(table: Mapping[str, Any], key: str) -> Any:
    value: Any = table
    for name in key.split("."):
        value = value[name]
    return value


def _plain(value: Any, key: str) -> Any:
    """Return a number with its unit as text, to a few digits; all else as it is."""
    if isinstance(value, bool | str | int) or not isinstance(value, float):
        return value
    return _shown(value, key).replace("µ", "u") if _unit(key) else float(f"{value:.{DIGITS}g}")


def _unit(key: str) -> str:
    try:
        return str(field_of(key)["unit"])
    except SpecError:
        return ""


def _shown(value: Any, key: str) -> str:
    if not isinstance(value, float):
        return str(value)
    unit = _unit(key)
    return format_quantity(value, unit, DIGITS) if unit else f"{value:.{DIGITS}g}"
