"""A measured tier as TOML, with where it comes from; the points as a table or as JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from lib_dlhpc.calibration.cold import DESCRIPTION
from lib_dlhpc.calibration.fit import Fit
from lib_dlhpc.calibration.points import WARM, WHAT, Point, as_dicts
from lib_dlhpc.spec.machine import StorageTier
from lib_dlhpc.spec.units import format_quantity


def as_toml(fit: Fit, points: Sequence[Point], host: Mapping[str, str]) -> str:
    """Return the table [machine.storage.NAME] of an experiment; what was measured, and how, stands in comments."""
    first, name = points[0], fit.tier.name
    rounds = len(first.seconds)
    readers = ", ".join(map(str, sorted({point.readers for point in points})))
    lines = [
        "# Measured by `dlhpc calibrate io` on " + ", ".join(host.values()) + ".",
        f"# {readers} readers; each time is the median of the calmer half of {rounds};{_load(points)}",
        f"# {how(first)}.",
        f"# It goes into an experiment; in a machine's own file it is [storage.{name}].",
        "#",
        *(f"# {line}".rstrip() for line in as_lines(points)),
        "#",
        f"# Fitted to files and random reads; median error {fit.error:.0%}, largest"
        f" {max(map(abs, fit.errors)):.0%}. After each number: what 10 % and 90 % of resampled fits stay below.",
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
    """Return what the points do not tell from nothing, which the table leaves out, with the ends of each."""
    missing = []
    for item in fields(StorageTier):
        if item.name in fit.intervals and getattr(fit.tier, item.name) == item.default:
            low, high = (_short(end, item.metadata["unit"]) for end in fit.intervals[item.name])
            missing.append(item.name + (f" ({low} to {high})" if low != high else ""))
    bound = (
        "# NOTE  The points do not tell the bandwidth of all readers together: it is the largest rate that was"
        " measured, a lower bound."
    )
    if not missing:
        return [bound] * fit.bound
    return [
        *[bound] * fit.bound,
        "# NOTE  Not told from none, and left out as if it were (latency 0, rate unlimited): "
        + ", ".join(missing)
        + ".",
        "# NOTE  Where that cannot be, measure longer, such as --seconds 60, on a machine that is quiet.",
    ]


def as_lines(points: Sequence[Point]) -> list[str]:
    """Return a table of what a sample takes: a line for each kind, a column for each number of readers."""
    counts = sorted({point.readers for point in points})
    found = {(point.what, point.size, point.readers): point for point in points}
    lines = [f"{'time of one, by readers':<62}" + "".join(f"{count:>10}" for count in counts)]
    for what, size in dict.fromkeys((point.what, point.size) for point in points):
        sized = "" if what in ("stat", "open") else f", {_binary(size)}"
        cells = [found.get((what, size, count)) for count in counts]
        times = [format_quantity(cell.quantile(0.5), "s") if cell else "" for cell in cells]
        lines.append(f"{WHAT[what] + sized:<62}" + "".join(f"{time:>10}" for time in times))
    return lines


def as_dict(fit: Fit, points: Sequence[Point], host: Mapping[str, str]) -> dict[str, Any]:
    """Return everything as plain tables, in SI units: where, how, the points, the tier and its intervals.

    What is not limited, or may not be, is left out: JSON has no infinity.
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
    """Return in words what was in memory when the point was measured."""
    return "all in the page cache" if point.state == WARM else DESCRIPTION[point.dropped]


def _load(points: Sequence[Point]) -> str:
    """Return in words what other processes kept busy in the repeats that count."""
    if not any(any(point.others) for point in points):
        return ""
    load = np.median([point.others_load for point in points])
    return f" others kept {load:.1f} cores busy then;"


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _short(value: float, unit: str) -> str:
    return format_quantity(value, unit).replace("µ", "u")


def _binary(size: int) -> str:
    for factor, prefix in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if size % factor == 0:
            return f"{size // factor} {prefix}B"
    return f"{size} B"
