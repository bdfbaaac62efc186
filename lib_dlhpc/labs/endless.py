"""Learners' functions in threads that are stopped when they do not end.

join(threads, patience)              wait for threads;  stop(threads): end those that still run
limited(function, patience, words)   what a function returns; Endless with `words()` where it does not return
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from time import monotonic, process_time
from typing import Any

from lib_dlhpc.labs.mistakes import Endless

ASLEEP = 6  # times as long by the clock: a program may sleep, and others may have the cores


class Stopped(BaseException):
    """Stops a thread after a timeout or an interrupt of its caller."""


def join(threads: Sequence[threading.Thread], patience: float) -> None:
    """Wait until all have ended, or `patience` s of this process's CPU are over."""
    end, clock = process_time() + patience, monotonic() + ASLEEP * patience
    for thread in threads:
        while thread.is_alive() and (left := min(end - process_time(), clock - monotonic())) > 0:
            thread.join(left)


def stop(threads: Sequence[threading.Thread]) -> None:
    """Raise Stopped in running threads. A thread in a long C call ends when the call returns."""
    alive = [thread for thread in threads if thread.is_alive()]
    for thread in alive:
        number = ctypes.c_ulong(thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(Stopped))
    for thread in alive:
        thread.join(1.0)


def limited(function: Callable[[], Any], patience: float, words: Callable[[], str]) -> Any:
    """Return what a function returns, run in a thread. Raises what it raises, and Endless with `words()`."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # sys.exit() as well
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        join([thread], patience)
        if thread.is_alive():
            raise Endless(words())
    finally:  # after a keyboard interrupt as well
        stop([thread])
    if errors:
        raise errors[0]
    return results[0]
