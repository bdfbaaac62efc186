"""Peak: how much memory a rank has held at most since a moment, beside what it had then."""

import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank. peak: the most that was resident beside `before`, the data set among it.

    before: what was resident before data and network were made: the interpreter, libraries, MPI. how: where
    peak is from; after "getrusage", which cannot be reset, it is too low if there was more before.
    """

    before: int
    peak: int
    data: int
    how: str

    @property
    def total(self) -> int:
        """All that was resident at the worst moment."""
        return self.before + self.peak


class Peak:
    """Watch from now on. Linux counts the pages of a process, and what they were at most (VmHWM)."""

    def __init__(self) -> None:
        self.before, self.how = _resident("VmRSS"), "getrusage"
        if self.before:
            self.how = "VmHWM"
            with suppress(OSError):  # where it may not be reset it is that of the whole process
                RESET.write_text("5")
        else:
            self.before = _most()

    def memory(self, data: int) -> Memory:
        """Return what was held so far; data: B of the samples."""
        most = _resident("VmHWM") or _most()
        return Memory(self.before, max(0, most - self.before), data, self.how)


def _resident(name: str) -> int:
    """Return one of Linux's counts in B; 0 on other systems."""
    try:
        lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    found = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((1024 * int(words[1]) for words in found), 0)


def _most() -> int:
    """Return the most that was ever resident, as the system remembers it; 0 where it does not."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else 1024 * most)
