"""A measured tier as commented TOML; the points as a table or as JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from lib_dlhpc.calibration.fit import Fit
from lib_dlhpc.calibration.page_cache import DESCRIPTION
from lib_dlhpc.calibration.points import WARM, WHAT, Point, as_dicts
from lib_dlhpc.spec.machine import StorageTier
from lib_dlhpc.spec.units import format_quantity


def as_toml(fit: Fit, points: Sequence[Point], host: Mapping[str, str]) -> str:
    """Return the table [machine.storage.NAME] of an experiment, with the measurements as comments."""
    first, name = points[0], fit.tier.name
    rounds = len(first.seconds)
    readers = ", ".join(map(str, sorted({point.readers for point in points})))
    lines = [
        "# Measured by `dlhpc calibrate io` on " + ", ".join(host.values()) + ".",
        f"# {readers} readers; each time is the median of the calmer half of {rounds};{_load(points)}",
        f"# {how(first)}.",
        f"# For an experiment; in a machine file the table is [storage.{name}].",
        "#",
        *(f"# {line}".rstrip() for line in as_lines(points)),
        "#",
        f"# Fitted to files and random reads; median error {fit.error:.0%}, largest"
        f" {max(map(abs, fit.errors)):.0%}. After each number: 10% and 90% quantiles of resampled fits.",
        *_not_found(fit),
        f"[machine.storage.{name}]",
    ]
    for item in fields(StorageTier):
        value = getattr(fit.tier, item.name)
        if item.name == "name" or value == item.default:
            continue
        if not isinstance(value, float):
            lines.append(f'{item.name} = "{value}"')
            continue
        lines.append(f'{item.name} = "{_short(value, item.metadata["unit"])}"')
        if item.name in fit.intervals:
            low, high = (_short(end, item.metadata["unit"]) for end in fit.intervals[item.name])
            lines[-1] += f"  # {low} to {high}"
    return "\n".join(lines) + "\n"


def _not_found(fit: Fit) -> list[str]:
    """Return notes on numbers indistinguishable from zero cost, which the table leaves out, with their intervals."""
    missing = []
    for item in fields(StorageTier):
        if item.name in fit.intervals and getattr(fit.tier, item.name) == item.default:
            low, high = (_short(end, item.metadata["unit"]) for end in fit.intervals[item.name])
            missing.append(item.name + (f" ({low} to {high})" if low != high else ""))
    bound = (
        "# NOTE  The points do not determine the bandwidth of all readers together: it is the largest measured rate,"
        " a lower bound."
    )
    if not missing:
        return [bound] * fit.bound
    return [
        *[bound] * fit.bound,
        "# NOTE  Indistinguishable from zero cost, and left out (latency 0, rate unlimited): "
        + ", ".join(missing)
        + ".",
        "# NOTE  If that is implausible, measure longer, such as --seconds 60, on an idle machine.",
    ]


def as_lines(points: Sequence[Point]) -> list[str]:
    """Return a table of times per sample: a line for each kind, a column for each number of readers."""
    counts = sorted({point.readers for point in points})
    found = {(point.what, point.size, point.readers): point for point in points}
    lines = [f"{'time per sample, by readers':<62}" + "".join(f"{count:>10}" for count in counts)]
    for what, size in dict.fromkeys((point.what, point.size) for point in points):
        sized = "" if what in ("stat", "open") else f", {_binary(size)}"
        cells = [found.get((what, size, count)) for count in counts]
        times = [format_quantity(cell.quantile(0.5), "s") if cell else "" for cell in cells]
        lines.append(f"{WHAT[what] + sized:<62}" + "".join(f"{time:>10}" for time in times))
    return lines


def as_dict(fit: Fit, points: Sequence[Point], host: Mapping[str, str]) -> dict[str, Any]:
    """Return everything as plain tables, in SI units: host, method, points, tier and intervals.

    Unlimited numbers are left out: JSON has no infinity.
    """
    return {
        "host": dict(host),
        "how": how(points[0]),
        "points": as_dicts(points),
        "tier": {key: value for key, value in vars(fit.tier).items() if _finite(value)},
        "intervals": {key: ends for key, ends in fit.intervals.items() if all(map(_finite, ends))},
        "errors": list(fit.errors),
    }


def how(point: Point) -> str:
    """Return the page cache state of a point, as text."""
    return "all in the page cache" if point.state == WARM else DESCRIPTION[point.dropped]


def _load(points: Sequence[Point]) -> str:
    """Return the load by other processes in the calmer repeats, as text."""
    if not any(any(point.others) for point in points):
        return ""
    load = np.median([point.others_load for point in points])
    return f" other processes kept {load:.1f} cores busy;"


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _short(value: float, unit: str) -> str:
    return format_quantity(value, unit).replace("µ", "u")


def _binary(size: int) -> str:
    for factor, prefix in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if size % factor == 0:
            return f"{size // factor} {prefix}B"
    return f"{size} B"
