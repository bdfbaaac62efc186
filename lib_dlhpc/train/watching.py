"""A process that ends when another one is gone, in whatever way it went: also where nobody could tell it."""

import os
import threading
import time

WATCH = 0.2  # s between two looks


def end_with(process: int) -> None:
    """End this process when another of this machine is gone: its parent, or one further up."""

    def watch() -> None:
        while there(process):
            time.sleep(WATCH)
        os._exit(1)

    there = _is_parent if process == os.getppid() else _is_there
    if os.name == "posix":  # elsewhere signal 0 is no question
        threading.Thread(target=watch, daemon=True).start()


def _is_parent(process: int) -> bool:
    """Whether it is this process's parent yet; a killed one that nobody has asked after is there, but no parent."""
    return os.getppid() == process


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
