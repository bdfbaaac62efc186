"""Polling for what a test asserts: a busy machine is slower, and only a failing test waits for long."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 180.0  # s; other tests may have all cores


def eventually(true: Callable[[], Any], what: str | Callable[[], Any] = "it") -> Any:
    """Poll until `true()` is true; return its value, or fail after PATIENCE naming `what`, text or a function of it.

    LookupError and TypeError count as not true yet.
    """
    end = time.monotonic() + PATIENCE
    while True:
        missing: Exception | None = None
        try:
            if value := true():
                return value
        except (LookupError, TypeError) as error:
            missing = error
        if time.monotonic() > end:
            text = what() if callable(what) else what
            raise AssertionError(f"{text}: not true after {PATIENCE:g} s") from missing
        time.sleep(0.05)
