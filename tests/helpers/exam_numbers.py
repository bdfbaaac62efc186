"""Numbers in exam questions and on pages: with their units, in SI units, and as they are printed."""

import re

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


def given(text: str, *pieces: str) -> list[float]:
    """Return the number that a question gives at {} of each piece of its text, in SI units."""
    number = rf"(-?\d[\d,]*(?:\.\d+)?)(?: ?({UNIT}\b))?"
    found = [re.search(re.escape(piece).replace(r"\{\}", number), text) for piece in pieces]
    assert all(found), (text, pieces)
    return [in_si(each[1], each[2] or "") for each in found if each]
