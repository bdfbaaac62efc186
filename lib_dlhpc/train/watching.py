"""What is gone when its processes are, in whatever way they went: other processes, and memory that they shared."""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

WATCH = 0.2  # s between two looks
SHARED = "/dev/shm/mpich_shm_"


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


def unname_shared(comm: Any) -> None:
    """Let the memory that the ranks of a node share go with the last of them (MPICH on Linux).

    MPICH takes its name away where ranks finish by themselves only: ended in any other way, each leaves 1 MB there.
    """
    comm.Barrier()  # all have found it by its name
    with suppress(OSError):
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8").split()
        for name in {word for word in mapped if word.startswith(SHARED)}:
            Path(name).unlink(missing_ok=True)
