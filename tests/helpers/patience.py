"""Polling for what a test asserts: a busy machine is slower, and only a failing test waits for long."""

import time
from collections.abc import Callable, Iterable
from typing import Any

PATIENCE = 180.0  # s; other tests may have all cores
# ms between looks inside a page: by default Playwright looks at every frame, and makes the browser paint one each time.
POLLING = 100
# In a page, a number for a text: pictures of hundreds of kilobytes need not be sent to see that they changed.
DIGEST = """text => { let sum = text.length;
  for (let i = 0; i < text.length; i++) sum = Math.imul(sum, 31) + text.charCodeAt(i) | 0;
  return `${sum} `; }"""


def eventually(true: Callable[[], Any], what: str | Callable[[], Any] = "it") -> Any:
    """Poll until `true()` is true; return its value, or fail after PATIENCE naming `what`, text or a function of it.

    LookupError and TypeError count as not true yet.
    """
    start = time.monotonic()
    while True:
        missing: Exception | None = None
        try:
            if value := true():
                return value
        except (LookupError, TypeError) as error:
            missing = error
        waited = time.monotonic() - start
        if waited > PATIENCE:
            text = what() if callable(what) else what
            raise AssertionError(f"{text}: not true after {PATIENCE:g} s") from missing
        time.sleep(min(max(waited / 10, 0.05), 1.0))  # looks cost time that what is awaited lacks


def living(pids: Iterable[int]) -> list[int]:
    """Those of some processes that have not ended. One that its parent has yet to reap has: init may take seconds."""
    import psutil

    found = []
    for pid in pids:
        try:
            found += [pid] if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE else []
        except psutil.NoSuchProcess:
            continue
    return found
