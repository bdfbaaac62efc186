"""All that a process has started, by whatever way: nothing of it is left behind."""

import os
import signal
import sys
import time
from contextlib import suppress

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
GRACE = 3.0  # s to end when asked to
TICK = 0.05


def adopt() -> None:
    """Become the parent of processes that those below this one leave behind, so that they can be found (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def end_family() -> None:
    """End every process below this one: asked first, then killed."""
    for how in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        until = time.monotonic() + GRACE
        asked = set[int]()
        while (left := descendants()) and time.monotonic() < until:
            for pid in left:
                if pid not in asked:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, how)
            asked.update(left)
            time.sleep(TICK)


def descendants() -> list[int]:
    """Return the processes below this one, without those that have ended and wait to be asked after."""
    import psutil  # type: ignore[import-untyped, unused-ignore]

    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
