"""This machine: its class, its cores, the packages that training uses, and which kernels BLAS has to take."""

import os
import platform
from functools import cache
from pathlib import Path

from lib_dlhpc.spec.units import count

# packages whose versions are recorded
PACKAGES = ("numpy", "mpi4py", "mpich", "openmpi", "impi-rt")
KERNELS = "OPENBLAS_CORETYPE"  # of an older processor, OpenBLAS computes half as fast


@cache
def host_class() -> str:
    """Return the class of this machine, such as "Linux x86_64, 8 cores, AMD EPYC 7B13"; not its host name."""
    words = [f"{platform.system()} {platform.machine()}", count(cores(), "core")]
    return ", ".join([*words, *filter(None, [_processor()])])


def cores() -> int:
    """Return the number of cores available to a process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """Return the processor's model, empty if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor()
    named = [line.partition(":")[2] for line in lines if line.startswith("model name")]
    return " ".join(named[0].split()) if named else platform.processor()


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of PACKAGES."""
    from importlib import metadata  # slow to import

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def kernels() -> dict[str, str]:
    """Return the processor for which the environment makes OpenBLAS choose its kernels; empty if it may decide."""
    return {KERNELS: chosen} if (chosen := os.environ.get(KERNELS)) else {}
