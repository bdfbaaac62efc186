"""Memory a process can still allocate: available on the machine, and within its cgroup limits."""

import os
from contextlib import suppress
from pathlib import Path

_MACHINE = Path("/proc/meminfo")
_GROUP, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def available() -> int:
    """Return B: on Linux what can be had without swapping, within the limits of batch systems and containers."""
    with suppress(OSError, ValueError, IndexError):
        fields = dict(line.split(":") for line in _MACHINE.read_text().splitlines())
        return min([int(fields["MemAvailable"].split()[0]) * 1024, *_left_to_group()])
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0


def _left_to_group() -> list[int]:
    """Return what each limit above this process leaves (cgroup 2: memory.max, memory.current)."""
    left = []
    with suppress(OSError, ValueError, StopIteration):
        lines = _GROUP.read_text().splitlines()
        path = next(line.removeprefix("0::") for line in lines if line.startswith("0::"))
        place = _GROUPS / path.strip("/")
        for folder in (place, *place.parents[: len(place.parts) - len(_GROUPS.parts)]):
            with suppress(OSError, ValueError):  # "max" is no limit
                most = int((folder / "memory.max").read_text())
                left.append(most - int((folder / "memory.current").read_text()))
    return left
