"""What a server has to draw before its first page is asked for."""

import multiprocessing
import os
import signal
import sys

from lib_dlhpc.explore.blocks import built
from lib_dlhpc.lifetime.watching import end_with


def draw(of_course: bool) -> None:
    """Draw what the pages show, in a process of its own: the memory that it takes, 380 MB, ends with it."""
    if not built.drawn():
        print("Drawing the pages: half a minute, once.", file=sys.stderr, flush=True)
        if os.name == "posix":
            fork = multiprocessing.get_context("fork")
            drawing = fork.Process(target=_draw_while, args=(os.getpid(), of_course))
            drawing.start()
            try:
                drawing.join()
            finally:
                drawing.kill()  # a signal has ended the wait
    _drawings(of_course)


def _draw_while(owner: int, of_course: bool) -> None:
    """Draw while that process lives."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)
    end_with(owner)
    _drawings(of_course)


def _drawings(of_course: bool) -> None:
    """Read what is drawn, or draw it."""
    built.vega()
    built.drawings()
    if of_course:
        from lib_dlhpc.explore.front.page import front_page

        front_page()
