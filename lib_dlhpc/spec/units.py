"""Quantities with units: "100 Gb/s" is parsed to SI base units, and formatted as "12.5 GB/s"."""

import math
import re
from collections.abc import Sequence
from typing import Any

from lib_dlhpc.errors import SpecError

PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
BINARY_PREFIXES = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
SMALL_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3}
MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 365.25 * 86_400.0  # s
WH, KWH = 3600.0, 3.6e6  # J
TIMES = {
    "s": 1.0,
    "min": MINUTE,
    "h": HOUR,
    **dict.fromkeys(("day", "days", "d"), DAY),
    **dict.fromkeys(("year", "years"), YEAR),
}
FACTORS: dict[str, dict[str, float]] = {
    "B": {"B": 1.0, "b": 0.125},
    "B/s": {"B/s": 1.0, "b/s": 0.125, "bit/s": 0.125, "bps": 0.125},
    "FLOP": {"FLOP": 1.0},
    "FLOP/s": {"FLOP/s": 1.0},
    "W": {"W": 1.0},
    "J": {"J": 1.0, "Wh": WH},
    "op/s": {"op/s": 1.0},
    "g/kWh": {"g/kWh": 1.0},  # as grids state it
    "": {"": 1.0, "billion": 1e9},
}

NO_TIME = 1e-12  # s; less is rounding error, printed as 0 s
COUNTABLE = 9  # digits before the decimal point; longer numbers have an exponent
LONGEST = 100  # characters; bounds the time of the regular expression
_LEGAL = (int, float, str)
_NUMBER = re.compile(r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s].*)?")


def _factor(symbol: str, unit: str) -> float | None:
    """Return the SI value of one `symbol` of the quantity measured in `unit`, None for other quantities."""
    if unit == "s":
        if symbol in TIMES:
            return TIMES[symbol]
        return SMALL_PREFIXES.get(symbol[:-1]) if symbol.endswith("s") else None
    for base, factor in FACTORS[unit].items():
        prefix = symbol[: len(symbol) - len(base)] if symbol.endswith(base) else None
        if prefix is None:
            continue
        scale = PREFIXES.get(prefix)
        if scale is None and unit in ("B", "B/s"):
            scale = BINARY_PREFIXES.get(prefix)
        if scale is not None:
            return scale * factor
    return None


def parse_quantity(value: Any, unit: str, field: str = "value") -> float:
    """Return `value` in SI `unit`: a number is returned unchanged, a string such as "100 Gb/s" is converted.

    unit: one of s, B, B/s, FLOP, FLOP/s, W, J, op/s, g/kWh or "" (dimensionless).
    Raises SpecError, which names `field` and a legal spelling.
    """
    if isinstance(value, bool) or not isinstance(value, _LEGAL):
        raise SpecError(f"{field} = {value!r}: expected {_example(unit)}.")
    if not isinstance(value, str):
        try:
            number = float(value)
        except OverflowError:
            raise SpecError(f"{field}: too large for a number; write {_example(unit)}.") from None
    else:
        if len(value) > LONGEST:
            raise SpecError(
                f"{field}: {len(value)} characters are no quantity; write {_example(unit)}."
            )
        match = _NUMBER.fullmatch(value.strip())
        factor = _factor(match.group(2) or "", unit) if match else None
        if match and not match.group(2):
            factor = 1.0
        if match is None or factor is None:
            raise SpecError(
                f"{field} = {value!r}: not a {f'quantity in {unit}' if unit else 'number'}; write {_example(unit)}."
            )
        number = float(match.group(1).replace("_", "")) * factor
    if math.isnan(number):
        raise SpecError(f"{field} = {value!r}: not a number; write {_example(unit)}.")
    return number


def _example(unit: str) -> str:
    examples = {
        "s": 'seconds or a string such as "1.5 us", "20 min"',
        "B": 'bytes or a string such as "25 MB", "16 GiB"',
        "B/s": 'bytes per second or a string such as "100 Gb/s", "12.5 GB/s"',
        "FLOP": 'FLOP or a string such as "50 MFLOP"',
        "FLOP/s": 'FLOP per second or a string such as "10.6 TFLOP/s"',
        "W": 'watts or a string such as "300 W", "1.2 kW"',
        "J": 'joules or a string such as "3 MJ", "2 kWh"',
        "g/kWh": 'grams per kilowatt-hour or a string such as "369 g/kWh", "0.4 kg/kWh"',
        "op/s": 'operations per second or a string such as "50 kop/s"',
    }
    return examples.get(unit, "a number")


def with_unit(text: str, unit: str) -> str:
    """Return a number and its unit, such as "3 s" and "5%"."""
    return f"{text}{unit}" if unit == "%" else f"{text} {unit}".strip()


def format_quantity(value: float, unit: str, digits: int = 3) -> str:
    """Return `value` (SI) with an SI prefix and `digits` significant digits, such as "12.5 GB/s"."""
    if math.isnan(value):
        return "not known"
    if math.isinf(value):
        return f"unlimited {unit}".rstrip() if value > 0 else f"-unlimited {unit}"
    if unit == "s":
        return _format_time(value, digits)
    if unit == "device-hours":  # a count of hours, as centers bill it: 1,234 rather than 1.23 k
        if 0 < abs(value) < 0.01:
            return f"{format_plain(3600 * value)} device-seconds"
        return f"{format_plain(value)} {unit}"
    if unit == "g" and abs(value) >= 1e6:
        value, unit = value / 1e6, "t"
    scales = [(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")]
    magnitude = abs(float(f"{value:.{digits}g}"))
    if magnitude >= 1e21:  # beyond the prefixes that anyone reads
        scales = []
    scale, prefix = next(((s, p) for s, p in scales if magnitude >= s), (1.0, ""))
    if unit == "" and scale == 1e9:
        prefix = "billion"
    return f"{_plain(value / scale, digits)} {prefix}{unit}".rstrip()


def format_energy(joules: float) -> str:
    """Return energy in watt-hours from 1 Wh on, as meters and bills have it, and in joules below."""
    return format_quantity(joules / WH, "Wh") if joules >= WH else format_quantity(joules, "J")


def format_plain(value: float) -> str:
    """Return three significant digits, or all before the decimal point: 0.254, 25.4, 25,400; then 25.4 M."""
    if abs(value) >= 1e6:
        return format_quantity(value, "")
    return f"{value:,.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def count(number: Any, noun: str) -> str:
    """Return a count with its noun: "1 node", "1,024 nodes", "2 batches"."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{int(number):,} {noun}{plural * (int(number) != 1)}"


def _format_time(value: float, digits: int) -> str:
    magnitude = abs(float(f"{value:.{digits}g}"))
    if magnitude < NO_TIME:
        return "0 s"
    scale, symbol = _time_unit(magnitude)
    return f"{_plain(value / scale, digits)} {symbol}"


def _time_unit(magnitude: float) -> tuple[float, str]:
    """Return the s of the unit in which a time is written, and its symbol."""
    steps = [
        (2 * YEAR, YEAR, "years"),
        (2 * DAY, DAY, "days"),
        (2 * HOUR, HOUR, "h"),
        (2 * MINUTE, MINUTE, "min"),
        (1.0, 1.0, "s"),
    ]
    steps += [(1e-3, 1e-3, "ms"), (1e-6, 1e-6, "µs"), (0.0, 1e-9, "ns")]
    return next((scale, symbol) for least, scale, symbol in steps if magnitude >= least)


def format_times(seconds: Sequence[float]) -> list[str]:
    """Return times of a column in one unit, that of the shortest: 23.5 h, 1,040 h; infinite ones as "unlimited s"."""
    finite = [each for each in seconds if math.isfinite(each) and each >= NO_TIME]
    scale, symbol = _time_unit(float(f"{min(finite, default=1.0):.3g}"))
    return [
        f"{format_plain(each / scale)} {symbol}" if each in finite else format_quantity(each, "s")
        for each in seconds
    ]


def _plain(number: float, digits: int) -> str:
    """Format without an exponent, except for large numbers: 1230, 12.3, 0.0123, 1.23e+12."""
    text = f"{number:.{digits}g}"
    short = 1 <= abs(number) < 10**COUNTABLE
    return f"{float(text):.0f}" if "e" in text and short else text
