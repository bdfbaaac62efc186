"""Programs that poll sleep longer between two looks.

Linux lets a sleep last up to 0.05 ms longer than it was asked to, and MPICH asks for next to none: a rank that waits
wakes up 5,000 times a second, which takes a tenth of a core from the ranks that work.
"""

import ctypes
import sys

SET_SLACK = 29  # prctl(2)
LONGER = 500_000  # ns


def sleep_longer() -> None:
    """Sleeps of this process and of all that it starts last up to LONGER more; elsewhere than on Linux, none does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_SLACK, ctypes.c_ulong(LONGER), 0, 0, 0)
