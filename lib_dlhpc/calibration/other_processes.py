"""Load by other processes: core seconds of the whole machine, to subtract our own."""

import os
from contextlib import suppress
from pathlib import Path

COUNTERS = Path("/proc/stat")
IDLE = (3, 4)  # columns idle and iowait; the others are work or steal
SHARES = 8  # columns; later ones are included in these


def busy() -> float:
    """Return the busy seconds of all cores since boot; 0 if unknown."""
    with suppress(OSError, ValueError, IndexError):
        first = COUNTERS.read_text().split("\n", 1)[0].split()[1 : SHARES + 1]
        ticks = sum(int(ticks) for column, ticks in enumerate(first) if column not in IDLE)
        return ticks / os.sysconf("SC_CLK_TCK")
    return 0.0
