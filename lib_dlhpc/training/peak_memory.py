"""Peak: the peak resident memory of a rank since a moment, above its baseline at that moment."""

import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lib_dlhpc.layers.base.arena import TRIM

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank. peak: the most that was resident above `before`, the data set included.

    before: resident before data and network were created: the interpreter, libraries, MPI. how: the source of
    the peak; "getrusage" cannot be reset, so the peak is too low if an earlier one was higher.
    """

    before: int
    peak: int
    data: int
    how: str

    @property
    def total(self) -> int:
        """The peak resident memory."""
        return self.before + self.peak


class Peak:
    """Measure from now on. Linux reports the peak resident size of a process (VmHWM)."""

    def __init__(self) -> None:
        # Otherwise memory freed by an earlier run counts as baseline, and hides as much of the peak.
        if TRIM:
            TRIM(0)
        self.before, self.how = _resident("VmRSS"), "getrusage"
        if self.before:
            self.how = "VmHWM"
            with suppress(OSError):  # if it cannot be reset, it is the peak of the whole process
                RESET.write_text("5")
        else:
            self.before = _most()

    def memory(self, data: int) -> Memory:
        """Return the memory so far; data: B of the samples."""
        most = _resident("VmHWM") or _most()
        return Memory(self.before, max(0, most - self.before), data, self.how)


def _resident(name: str) -> int:
    """Return a field of /proc/self/status in B; 0 on other systems."""
    try:
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    fields = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((1024 * int(words[1]) for words in fields), 0)


def _most() -> int:
    """Return the peak resident size since the process began; 0 where unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else 1024 * most)
