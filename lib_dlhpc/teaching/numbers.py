"""Numbers in exam questions and on pages: with their units, in SI units, and as they are printed."""

import json
import re
from collections.abc import Set
from functools import cache
from pathlib import Path

from lib_dlhpc.spec.units import parse_quantity

UNIT = r"[kMGTµmn]?(?:B/s|FLOP/s|B|s|h|min|days)(?!/)"
NUMBER = re.compile(rf"^(?:once in )?(-?[\d,]+(?:\.\d+)?)(?: ?({UNIT}))?\b")
PRINTED = re.compile(rf"(?<![\w.,])(-?\d[\d,]*(?:\.\d+)?)(?: ?({UNIT}\b|%))?(?!\w)")
IN_SECONDS = {"days": 86400, "h": 3600, "min": 60}


def value(option: str) -> float | None:
    """Return the number with which an option begins, in SI units; None where it begins with a word."""
    found = NUMBER.match(option)
    return in_si(found[1], found[2] or "") if found else None


def in_si(number: str, unit: str) -> float:
    """Return a number in SI units."""
    plain = float(number.replace(",", ""))
    if unit in IN_SECONDS:
        return plain * IN_SECONDS[unit]
    kind = unit.lstrip("kMGTµmn") or unit
    return parse_quantity(f"{plain} {unit}", kind, "option") if unit else plain


def printed(text: str) -> set[tuple[str, str]]:
    """Return all numbers of a text, as printed, each with its unit."""
    return {(number.replace(",", ""), unit) for number, unit in PRINTED.findall(text)}


def seen(page: Path) -> str:
    """Return what a reader of a notebook sees: its text, and what is stored of its outputs."""
    cells = json.loads(page.read_text("utf-8"))["cells"]
    found = ["".join(cell["source"]) for cell in cells]
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        kinds = output.get("data", {}) | {"text": output.get("text", "")}
        found += ["".join(kinds[kind]) for kind in kinds if kind.startswith("text")]
    return "\n".join(found)


@cache
def on_page(page: Path) -> Set[tuple[str, str]]:
    """Return the numbers that a notebook shows; none where there is no such notebook."""
    return printed(seen(page)) if page.is_file() else frozenset()
