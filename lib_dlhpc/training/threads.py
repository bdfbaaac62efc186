"""One thread for BLAS: small products lose more to thread synchronization than they gain.

Ranks and other worker processes start with OMP_NUM_THREADS=1, a notebook's kernel does not; on a busy machine
two threads that synchronize at each small product are ten times as slow as one.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

# Names of the two OpenBLAS functions in numpy's wheels and other builds.
NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS in this process to one thread inside; does nothing without OpenBLAS."""
    get, put = openblas() or (lambda: 1, lambda count: None)
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)


@cache
def openblas() -> tuple[Any, Any] | None:
    """Return the getter and the setter of the thread count of numpy's OpenBLAS."""
    package = Path(np.__file__).parent
    folders = (package.parent / "numpy.libs", package / ".dylibs", package.parent / "lib")
    for path in (path for folder in folders for path in folder.glob("*openblas*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in NAMES:
            if hasattr(library, name.format("set")):
                return getattr(library, name.format("get")), getattr(library, name.format("set"))
    return None
