"""Predicted against measured I/O: python benchmarks/io.py [FOLDER] [--seconds 90].

A storage tier is fitted to what `dlhpc calibrate io` measures; then file sizes and numbers of readers that the
fit has not seen are predicted, with the formula of `dlhpc predict`, and measured: one file a sample, and parts
of packed partitions; cold, and warm with a tier of its own. Settings are interleaved, so that load by other processes
slows them alike. Exits 1 if a line is off by more than 25%.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from _quick import add_quick

from lib_dlhpc.calibration import page_cache
from lib_dlhpc.calibration.expected import expected
from lib_dlhpc.calibration.fit import FITTED, fit_io
from lib_dlhpc.calibration.host import host
from lib_dlhpc.calibration.io import KiB, MiB, Setting, default_settings, measure_io
from lib_dlhpc.calibration.points import COLD, WARM, Point
from lib_dlhpc.calibration.report import as_toml, how

AIM, SECONDS, SIZE, QUICK = 0.25, 90.0, 512.0 * MiB, 48.0 * MiB
SIZES = (
    ("file", 8 * KiB),
    ("file", 16 * KiB),
    ("file", 128 * KiB),
    ("file", 512 * KiB),
    ("random", 32 * KiB),
    ("random", 64 * KiB),
    ("random", 256 * KiB),
)
READERS = (1, 3, 4)
NAMES = {"file": "one file a sample", "random": "packed"}


def line(point: Point, predicted: float) -> tuple[str, float]:
    """Return one line of the table, and its error."""
    low, middle, high = (1e6 * point.quantile(share) for share in (0.1, 0.5, 0.9))
    error = 1e6 * predicted / middle - 1
    text = (
        f"{NAMES[point.what]:<18} {point.size // KiB:>5} KiB {point.readers:>8} {1e6 * predicted:>11.1f}"
        f" {middle:>11.1f} {f'{low:.1f} - {high:.1f}':>19} {error:>+8.1%}"
    )
    return text, abs(error)


def compare(folder: Path, state: str, seconds: float, size: float) -> list[float]:
    """Measure everything in this state, print the table of what the fit has not seen; returns its errors."""
    seen = default_settings()
    unseen = [Setting(*kind, readers) for readers in READERS for kind in SIZES]
    unseen += [
        Setting(each.what, each.size, readers)
        for readers in (3,)
        for each in seen
        if each.what in FITTED and each.readers == 1
    ]
    points = measure_io(folder, state=state, seconds=seconds, size=size, settings=[*seen, *unseen])
    fit = fit_io(points[: len(seen)])
    print(
        f"\n{state}: {how(points[0])}; medians of the calmer half of {len(points[0].seconds)}, us a sample"
    )
    print(
        "\n".join(as_toml(fit, points[: len(seen)], host(folder)).split("\n[")[1].split("\n")[1:])
    )
    print(f"{'':<18} {'of':>9} {'readers':>8} {'predicted':>11} {'measured':>11} {'p10 - p90':>19}")
    errors = []
    for point in sorted(points[len(seen) :], key=lambda each: (each.what, each.size)):
        text, error = line(point, expected(fit.tier, point))
        errors.append(error)
        print(text + ("  MISSED" if error > AIM else ""))
    return errors


def main() -> int:
    """Print the comparison; 1 if a line is off by more than AIM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each state, about")
    add_quick(parser)
    given = parser.parse_args()
    print("; ".join(host(given.folder).values()))
    states = [WARM] if given.quick or page_cache.ways()[0] == page_cache.NONE else [COLD, WARM]
    seconds, size = (1.0, QUICK) if given.quick else (given.seconds, SIZE)
    worst = 0.0
    for state in states:
        errors = sorted(compare(given.folder, state, seconds, size))
        within, worst = sum(error <= AIM for error in errors), max(worst, errors[-1])
        middle = errors[len(errors) // 2]
        print(
            f"{within} of {len(errors)} lines within {AIM:.0%}; median {middle:.1%}, worst {errors[-1]:.1%}"
        )
    return int(worst > AIM and not given.quick)


if __name__ == "__main__":
    sys.exit(main())
