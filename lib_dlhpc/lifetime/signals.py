"""Signal handling: INT, TERM and HUP, Ctrl-C or a closed terminal, raise KeyboardInterrupt, then clean up.

After kill -9 the guard cleans up.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
IMPORTING = "<frozen importlib._bootstrap>"
_first = signal.SIGINT


def end_at_once() -> None:
    """Let the signals end this process until `taken` handles them: for a command that is being imported."""
    for name in NAMES:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    atexit.register(_ignore)


@contextmanager
def taken() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block at INT, TERM and HUP; ignored ones stay ignored, as under nohup."""
    ours = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in NAMES if ours and hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    global _first
    _first = signal.SIGINT
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, _take)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def status() -> int:
    """Return the shell's exit status of a command ended by a signal: 130, 143 or 129."""
    return 128 + _first


def by_keys() -> bool:
    """Whether it was Ctrl-C that ended the command."""
    return _first == signal.SIGINT


def _take(number: int, frame: FrameType | None) -> None:
    """Exit immediately, nothing has started; an exception in the middle of an import may become another."""
    global _first
    _first = signal.Signals(number)
    owned = sys.modules.get("lib_dlhpc.lifetime.owned")  # heavier than what must be here at once
    begun = getattr(owned, "anything", bool)
    if _imports(frame) and not begun():
        _leave(number)
    raise KeyboardInterrupt


def _leave(number: int, *_: object) -> None:
    with suppress(OSError):
        os.write(2, b"dlhpc: Cancelled.\n")
    os._exit(128 + number)


def _ignore() -> None:
    """A command that has come to its end keeps its exit status: Python's shutdown would let a signal end it."""
    for name in NAMES:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            return True
        frame = frame.f_back
    return False
