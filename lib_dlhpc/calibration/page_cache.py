"""Drop the page cache before each read, by the strongest permitted method, so that reads are cold."""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

DROP, ADVISE, NONE = "drop_caches", "posix_fadvise", "none"
DESCRIPTION = {
    DROP: "page cache dropped with drop_caches: data and metadata cold",
    ADVISE: "page cache dropped with posix_fadvise: data cold, metadata warm",
    NONE: "page cache cannot be dropped here: warm only",
}
SWITCH = Path("/proc/sys/vm/drop_caches")


def ways() -> tuple[str, ...]:
    """Return the permitted ways to drop the page cache, the strongest first."""
    found = []
    with suppress(OSError), SWITCH.open("w"):  # visible but read-only in some containers
        found.append(DROP)
    if hasattr(os, "posix_fadvise") and sys.platform == "linux":
        found.append(ADVISE)
    return tuple(found) or (NONE,)


def empty(way: str, paths: Iterable[Path]) -> None:
    """Drop the cached pages of these flushed files; DROP drops those of all files of the machine."""
    if way == DROP:
        _switch()
    elif way == ADVISE:
        for path in paths:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def _switch() -> None:
    with SWITCH.open("w") as switch:
        switch.write("3\n")
