"""Forget what the engines remember of layouts: after many were tried, a page needs that of one."""

import sys
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from typing import Any

ROOMS = tuple(f"lib_dlhpc.{room}" for room in ("layout", "parallel", "program", "costs"))
ROOMS += ("lib_dlhpc.prediction.memory.rank_memory",)


def forget() -> None:
    """Empty the caches of layouts, programs, their prices and memory; the next prediction fills them for its own."""
    for cache in remembered():
        cache.cache_clear()


def remembered() -> Iterator["_lru_cache_wrapper[Any]"]:
    """Yield the caches of layouts, programs, their prices and memory."""
    for name, module in list(sys.modules.items()):
        if name.startswith(ROOMS):
            for var in list(vars(module).values()):
                if isinstance(var, _lru_cache_wrapper):
                    yield var
