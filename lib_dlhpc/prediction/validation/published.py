"""Published results, and how each is used: scored, as an input of others, or left out with the reason.

results.csv in catalog/published has what was measured. A family, a TOML file beside it, says of which rows
it predicts which, from what, and why it leaves others out. Every row of results.csv stands in a family.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.records import dataclass
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.units import TIMES

UNITS = {
    **TIMES,
    "ms": 1e-3,
    "KB": 1e3,
    "GB": 1e9,
    "GB/s": 1e9,
    "Gbit/s": 1.25e8,
    "TB": 1e12,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
    "MWh": 3.6e9,
    "TFLOP/s": 1e12,
    "PFlop/s": 1e15,
    "%": 0.01,
}

# keys of a row that name the measured row it starts from
STARTS = ("from", "scale_from", "link_from")


@dataclass(frozen=True)
class RowUse:
    """How a published row is used, and why it is not scored if it is not."""

    status: str  # scored, input, left out
    why: str = ""


@cache
def _table() -> str:
    with open(catalog.ROOT / "published" / "results.csv", encoding="utf-8", newline="") as file:
        return file.read()


@cache
def results() -> dict[str, dict[str, str]]:
    """Return the published results by id, as text."""
    return {row["id"]: row for row in csv.DictReader(io.StringIO(_table()))}


def published(identity: str) -> dict[str, str]:
    """Return one published result, as text; raises SpecError."""
    table = _table()  # reading all of its rows would take as long as a prediction
    begin = table.find(f"\n{identity},") + 1
    if not begin:
        raise SpecError(f"{identity!r} is not in catalog/published/results.csv.")
    names = table[: table.index("\n")].rstrip()
    return next(csv.DictReader(io.StringIO(f"{names}\n{table[begin:]}")))


def value_of(identity: str) -> float:
    """Return a published value in SI units."""
    row = published(identity)
    return float(row["value"]) * UNITS.get(row["unit"], 1.0)


def family(name: str) -> dict[str, Any]:
    """Return one family of published rows, with its name; raises SpecError."""
    return {**catalog.read("published", name), "name": name}


def families(chosen: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the families of these names, all without any; raises SpecError."""
    return [family(name) for name in tuple(chosen) or catalog.names("published")]


def entries(table: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the entries of a family under "rows", "inputs" or "left_out", one for each id; raises SpecError.

    `because` names a reason that several entries share.
    """
    return [
        {**entry, **_shared_reason(entry), "id": identity}
        for entry in table.get(kind, [])
        for identity in entry.get("ids", [entry.get("id")])
    ]


def _shared_reason(entry: Mapping[str, Any]) -> dict[str, str]:
    if "because" not in entry:
        return {}
    known = family("not-modelled")["reasons"]
    if entry["because"] not in known:
        raise SpecError(
            f"because = {entry['because']!r} is no entry of [reasons] in catalog/published/not-modelled.toml; legal:"
            f" {', '.join(known)}."
        )
    return {"reason": known[entry["because"]]}


def row_of(identity: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the family of a published row that is scored, or left out, and its entry there; raises SpecError."""
    families = sorted(catalog.names("published"), key=lambda name: not identity.startswith(name))
    for name in families:
        if identity not in catalog.text(kind="published", name=name):
            continue  # parsing all files would take most of the time of a prediction
        table = family(name)
        for entry in [*entries(table, "rows"), *entries(table, "left_out")]:
            if entry["id"] == identity:
                return table, entry
    raise SpecError(f"{identity!r} is not a row that is scored or left out.")


def standings(chosen: Iterable[str] = ()) -> dict[str, RowUse]:
    """Return how every published row of these families is used, by id."""
    tables = families(chosen)
    found: dict[str, RowUse] = {}
    for table in tables:
        for entry in entries(table, "left_out"):
            found[entry["id"]] = RowUse("left out", entry["reason"])
    started: dict[str, list[str]] = {}
    for table in tables:
        for entry in [*entries(table, "rows"), *entries(table, "inputs")]:
            for start in {entry[key] for key in STARTS if key in entry}:
                started.setdefault(start, []).append(entry["id"])
        for entry in entries(table, "inputs"):
            if "reason" in entry:
                found[entry["id"]] = RowUse("input", entry["reason"])
    for start, rows in started.items():
        more = f" and {len(rows) - 1} more" * (len(rows) > 1)
        found.setdefault(start, RowUse("input", f"the measured start of {rows[0]}{more}"))
    for table in tables:
        found |= {entry["id"]: RowUse("scored") for entry in entries(table, "rows")}
    return found


def rounding(text: str) -> float:
    """Return one unit in the last nonzero digit of a printed number, over the number: it was rounded or cut."""
    mantissa, _, exponent = text.lower().partition("e")
    digits = mantissa.rstrip("0") if "." in mantissa else mantissa
    if digits.endswith(".") or "." not in digits:
        whole = digits.rstrip(".")
        last = len(whole) - len(whole.rstrip("0"))
    else:
        last = -len(digits.partition(".")[2])
    return math.pow(10.0, last + int(exponent or 0)) / abs(float(text))
