"""What else this machine does meanwhile: the cores' seconds that other processes took during a measurement."""

import os
from contextlib import suppress
from pathlib import Path

COUNTERS = Path("/proc/stat")
IDLE = (
    3,
    4,
)  # of the columns: idle, and waiting for a device; the others are work, or taken by a host
SHARES = 8  # columns; later ones are counted in these already


def busy() -> float:
    """Return the seconds that all cores together have worked since the start; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        first = COUNTERS.read_text().split("\n", 1)[0].split()[1 : SHARES + 1]
        ticks = sum(int(ticks) for column, ticks in enumerate(first) if column not in IDLE)
        return ticks / os.sysconf("SC_CLK_TCK")
    return 0.0
