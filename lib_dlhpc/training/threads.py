"""One thread for numpy's products: small ones lose more by waiting for each other than they gain.

Ranks and other processes of ours are started with OMP_NUM_THREADS=1; a notebook's kernel is not, and on a
busy machine two threads that wait for one another at each small product are ten times as slow as one.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

# What numpy's wheels and other builds call the two functions of OpenBLAS.
NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads",
         "openblas_{}_num_threads64_", "openblas_{}_num_threads")  # fmt: skip


@contextmanager
def one_thread() -> Iterator[None]:
    """Let products of this process take one thread inside; where OpenBLAS is not found, change nothing."""
    ask, tell = _openblas() or (lambda: 1, lambda count: None)
    before = ask()
    tell(1)
    try:
        yield
    finally:
        tell(before)


@cache
def _openblas() -> tuple[Any, Any] | None:
    """Return what tells and what sets the number of threads of numpy's own OpenBLAS."""
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
