"""A process that polls its parent and ends with it: for ranks on nodes without a guard (guard.py)."""

import os
import threading
import time

WATCH = 0.2  # s, polling interval


def end_with(parent: int) -> None:
    """End this process when its parent is not `parent` (any more)."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os._exit(1)

    if os.name == "posix":  # elsewhere getppid() is unchanged after the parent's end
        threading.Thread(target=watch, daemon=True).start()
