"""MPICH's shared memory: unlinked early, so that it is freed however its processes end."""

from contextlib import suppress
from pathlib import Path
from typing import Any

SHARED = "/dev/shm/mpich_shm_"


def unname_shared(comm: Any) -> None:
    """Unlink the shared memory of a node's ranks, so that it is freed with the last of them (MPICH on Linux).

    MPICH itself unlinks it only in MPI_Finalize: killed ranks would leave 1 MB each.
    """
    comm.Barrier()  # all ranks have mapped it
    with suppress(OSError):
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8").split()
        for name in {word for word in mapped if word.startswith(SHARED)}:
            Path(name).unlink(missing_ok=True)
