"""How long a rank was ready to run but had no core: direct evidence that other processes compete for the cores.

Linux counts this run-queue delay for each thread: the second number of /proc/thread-self/schedstat, in ns
(kernel documentation, scheduler/sched-stats). Other systems do not report it.
"""

import os

COUNTER = "/proc/thread-self/schedstat"
LONGEST = 64  # B of its three numbers


class CoreWait:
    """Seconds that this thread waited for a core in each of its steps; empty where the system does not report it."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self._file: int | None = None
        try:
            self._file = os.open(COUNTER, os.O_RDONLY)
            self._since = self._read()
        except (OSError, ValueError, IndexError):
            self.close()

    def __del__(self) -> None:
        self.close()

    def step_ends(self) -> None:
        """Mark the end of a step and the start of the next."""
        if self._file is not None:
            now = self._read()
            self.steps.append(now - self._since)
            self._since = now

    def leave_out(self) -> None:
        """Exclude the time since the last step, such as an evaluation."""
        if self._file is not None:
            self._since = self._read()

    def close(self) -> None:
        """Close the counter."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> float:
        assert self._file is not None
        return int(os.pread(self._file, LONGEST, 0).split()[1]) / 1e9
