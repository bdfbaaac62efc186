"""Shared memory of MPICH that goes with its processes, in whatever way they go, on any node."""

from contextlib import suppress
from pathlib import Path
from typing import Any

SHARED = "/dev/shm/mpich_shm_"


def unname_shared(comm: Any) -> None:
    """Let the memory that the ranks of a node share go with the last of them (MPICH on Linux).

    MPICH takes its name away where ranks finish by themselves only: ended in any other way, each leaves 1 MB there.
    """
    comm.Barrier()  # all have found it by its name
    with suppress(OSError):
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8").split()
        for name in {word for word in mapped if word.startswith(SHARED)}:
            Path(name).unlink(missing_ok=True)
