"""Progress: how much of a long command is done, reported every few seconds."""

import time
from collections.abc import Callable

EVERY = 10.0  # s


class Progress:
    """Calls `report` with how much is done, and of how much: at most every EVERY s, and not before."""

    def __init__(self, report: Callable[[int, int], None]) -> None:
        self.report, self.due = report, time.monotonic() + EVERY

    def is_due(self) -> bool:
        """Return whether a call would report."""
        return time.monotonic() >= self.due

    def __call__(self, done: int, of: int) -> None:
        """Report if that is due."""
        if self.is_due():
            self.report(done, of)
            self.due = time.monotonic() + EVERY
