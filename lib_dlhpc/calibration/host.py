"""Describe the host of a measurement, without identifying its owner."""

import os
import platform
import shutil
from datetime import date
from pathlib import Path

from lib_dlhpc.spec.host import cores
from lib_dlhpc.spec.units import format_quantity

MOUNTS = Path("/proc/mounts")


def host(folder: Path) -> dict[str, str]:
    """Return date, cores, memory, file system of `folder`, kernel and Python, as far as known."""
    memory, kind = memory_size(), file_system(folder)
    return {
        "date": date.today().isoformat(),
        "cores": f"{cores()} cores",
        **({"memory": format_quantity(memory, "B", 2)} if memory else {}),
        **({"file system": kind} if kind else {}),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"Python {platform.python_version()}",
    }


def memory_size() -> int:
    """Return the machine's memory in B, 0 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def file_system(folder: Path) -> str:
    """Return the type of the file system of `folder`, such as ext4; "" if unknown."""
    try:
        lines = MOUNTS.read_text().splitlines()
    except OSError:
        return ""
    resolved, found, longest = folder.resolve(), "", -1
    for _, point, kind, *_ in map(str.split, lines):
        place = Path(point.replace("\\040", " "))
        if resolved.is_relative_to(place) and len(place.parts) >= longest:
            found, longest = kind, len(place.parts)
    return found


def capacity(folder: Path) -> float:
    """Return the free bytes on the file system of `folder`."""
    return float(shutil.disk_usage(folder).free)
