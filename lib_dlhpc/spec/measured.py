"""Measured: host, date, software versions and confidence intervals of a calibrated machine."""

import math
from collections.abc import Callable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec.schema import check_keys, check_value

if TYPE_CHECKING:
    pass


KEYS = ("date", "host", "ranks", "cores", "versions", "intervals")
OF_IMPORTED = {"ranks": 1, "cores": 1, "versions": {}}  # what outputs of other tools do not tell


@dataclass(frozen=True)
class Measured:
    """Provenance of a machine's parameters; `intervals` are 90% confidence intervals, 5% to 95%.

    host: a class of machines, not a host name. intervals: by dotted name below the machine, such as
    "device.half_work" or "intra_node.latency", in SI units; every parameter named there was measured.
    complete: the file has a whole machine, as `dlhpc import machine` writes it, whose other numbers count as well;
    host then names the files that it was imported from.
    """

    date: str
    host: str
    ranks: int
    cores: int
    versions: Mapping[str, str]
    intervals: Mapping[str, tuple[float, float]]
    complete: bool = False


def read_measured(
    table: Any, path: str, field_of: Callable[[str, str], Mapping[str, Any]]
) -> Measured:
    """Build a Measured from its TOML table; raises SpecError.

    field_of: the declaration of a machine's number, by its dotted name and for a path.
    """
    check_keys(table, (*KEYS, "complete"), path)
    complete = table.get("complete", False)
    if not isinstance(complete, bool):
        raise SpecError(f"{path}.complete = {complete!r}: legal: true, false.")
    table = (OF_IMPORTED if complete else {}) | dict(table)
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
        {
            key: _interval(field_of(key, f"{path}.intervals"), ends, f'{path}.intervals."{key}"')
            for key, ends in intervals.items()
        },
        complete,
    )


def _interval(meta: Mapping[str, Any], ends: Any, where: str) -> tuple[float, float]:
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise SpecError(f"{where} = {ends!r}: expected two ends, such as [1.5, 2.5].")
    low, high = (float(check_value(meta, end, where)) for end in ends)
    if not low <= high < math.inf:
        raise SpecError(f"{where} = {list(ends)!r}: expected the lower end first, and no infinity.")
    return low, high
