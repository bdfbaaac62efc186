"""Waiting for what a test asserts: a busy machine shows it later, and only a test that fails waits for long."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE = 180.0  # s; other tests may have all cores


def eventually(true: Callable[[], Any], what: str | Callable[[], Any] = "it") -> Any:
    """Look until `true()` is; return its value, or fail after PATIENCE naming `what`, a text or what tells it.

    What is not there yet to be looked at is looked at again.
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
            told = what() if callable(what) else what
            raise AssertionError(f"{told}: did not come true in {PATIENCE:g} s") from missing
        time.sleep(0.05)
