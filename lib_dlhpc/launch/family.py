"""All that a process has started, by whatever way: nothing of it is left behind."""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

DEATH_SIGNAL, SUBREAPER = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
ASKED, KILLED = 1.5, 3.0  # s to end when asked to, and to be gone when killed
TICK = 0.05


def adopt() -> None:
    """Become the parent of processes that those below this one leave behind, so that they can be found (Linux)."""
    import psutil  # type: ignore[import-untyped, unused-ignore]  # noqa: F401  not first in a handler of a signal

    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def asked_to_end(*_: Any) -> None:
    """Take SIGTERM: end, and with it every process below this one."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_family()
    os._exit(128 + signal.SIGTERM)


def ends_with_parent() -> Callable[[], Any] | None:
    """Return what a child does to be asked to end when this process is killed, on Linux (a preexec_fn)."""
    if sys.platform != "linux":
        return None
    import ctypes

    control = ctypes.CDLL(None).prctl
    return lambda: control(DEATH_SIGNAL, signal.SIGTERM)


def end_family() -> None:
    """End every process below this one: asked first, then killed."""
    kill = getattr(signal, "SIGKILL", signal.SIGTERM)
    for how, patience in ((signal.SIGTERM, ASKED), (kill, KILLED)):
        until = time.monotonic() + patience
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
