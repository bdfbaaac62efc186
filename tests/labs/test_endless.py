"""A function in a thread: what it returns or raises comes back, and one that does not end is stopped."""

import threading

import pytest
from patience import eventually

from lib_dlhpc.labs.endless import limited
from lib_dlhpc.labs.mistakes import Endless


def words():
    """What is said of a function that does not end."""
    return "which loop?"


def test_what_a_function_returns_or_raises_comes_back():
    assert limited(lambda: 7, 60, words) == 7
    with pytest.raises(KeyError, match="fp16"):
        limited(lambda: {}["fp16"], 60, words)


def test_a_loop_that_does_not_end_is_stopped():
    before = threading.active_count()

    def walking():
        while True:
            pass

    with pytest.raises(Endless, match=r"which loop\?"):
        limited(walking, 0.05, words)
    eventually(lambda: threading.active_count() <= before, "its end")
