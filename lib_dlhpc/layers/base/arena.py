"""Arena: planned, reused memory. Fresh memory costs a page fault every 4 KiB.

All passes over batches of one size allocate the same arrays in the same order and free them at the same
points. The first pass gets fresh memory and is profiled. In later passes each array has a fixed offset in one
arena, next to arrays that are live at the same time and overlapping those that are not (Sekiyama et al.
2018, "Profile-guided memory optimization for deep neural networks").
"""

import ctypes
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from math import inf, prod
from mmap import ACCESS_COPY, mmap
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.layers.base.arena_plan import LINE, Lifetime, assign_offsets

SMALL = 32 * 1024  # bytes; below this the allocator is as fast
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

Block = NDArray[np.uint8]


class Arena:
    """Memory for the arrays of a network's passes; an offset is free when no array occupies it.

    Reference counts decide, so nothing is freed explicitly. If an array still occupies the planned offset, or a
    pass requests something new, memory is fresh: memory in use is never handed out.
    """

    def __init__(self) -> None:
        self._plans: dict[Hashable, list[tuple[int, int]]] = {}  # offset and size of each array
        self._lengths: dict[Hashable, int] = {}
        self._key: Hashable = None
        self._profile: _Profile | None = None
        self._next = 0  # index of the next array of the pass
        self._pool = _Pool(0)

    def begin(self, key: Hashable) -> None:
        """Begin a pass; passes with the same key allocate the same arrays.

        Networks that share an arena begin one after the other, before any of them allocates an array.
        """
        if key == self._key and not (self._next if self._profile is None else self._profile.seen):
            return
        if self._profile is not None:
            lifetimes = self._profile.end()
            starts, self._lengths[self._key] = assign_offsets(lifetimes)
            sizes = (lifetime.size for lifetime in lifetimes)
            self._plans[self._key] = list(zip(starts, sizes, strict=True))
        self._key, self._next, self._profile = key, 0, None
        if key not in self._plans:
            self._pool = _Pool(0)  # the profiled pass may need the memory
            self._profile = _Profile()
        elif self._pool.length < max(self._lengths.values()):
            self._pool = _Pool(0)
            trim_heap()
            self._pool = _Pool(max(self._lengths.values()))

    def release(self) -> None:
        """Release all memory until the next pass; no array may be in use."""
        self._key, self._profile, self._pool = None, None, _Pool(0)
        trim_heap()

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array to write to."""
        size = prod(shape) * np.dtype(dtype).itemsize
        if size < SMALL:
            return np.empty(shape, dtype)
        block = self._planned(size) if self._profile is None else self._profile.block(size)
        if block is None:
            return np.empty(shape, dtype)
        return block.view(dtype).reshape(shape)

    def _planned(self, size: int) -> Block | None:
        """Return the planned memory of the next array, if it is free."""
        plan, number = self._plans.get(self._key, []), self._next
        self._next += 1
        if number < len(plan) and plan[number][1] == size:
            return self._pool.block(*plan[number])
        self._plans.pop(self._key, None)  # differs from the profile: profile the next pass
        self._lengths.pop(self._key, None)
        return None


def trim_heap() -> None:
    """Return the allocator's free memory to the system: glibc may retain 64 MB."""
    if TRIM is not None:
        TRIM(0)


class _Profile:
    """Profiles the allocations of a pass and their lifetimes."""

    def __init__(self) -> None:
        self._lifetimes: list[Lifetime] = []
        self._live: list[int] = []  # indices of live arrays
        self._blocks: list[Block] = []  # their blocks

    @property
    def seen(self) -> int:
        """The number of allocated arrays."""
        return len(self._lifetimes)

    def block(self, size: int) -> Block:
        """Return fresh memory by mmap: an allocator would retain it when it is freed."""
        self._collect()
        self._live.append(len(self._lifetimes))
        self._blocks.append(np.frombuffer(mmap(-1, size, access=ACCESS_COPY), np.uint8))
        self._lifetimes.append(Lifetime(size, len(self._lifetimes), inf))
        return self._blocks[-1]

    def end(self) -> list[Lifetime]:
        """Return all lifetimes; arrays that are still live get an offset of their own."""
        self._collect()
        for number in self._live:
            self._lifetimes[number] = self._lifetimes[number]._replace(born=-inf)
        return self._lifetimes

    def _collect(self) -> None:
        for index in reversed(range(len(self._blocks))):
            if getrefcount(self._blocks[index]) == 2:  # references: the list, and the argument
                number = self._live.pop(index)
                self._lifetimes[number] = self._lifetimes[number]._replace(
                    died=len(self._lifetimes)
                )
                del self._blocks[index]


class _Pool:
    """One block of memory, parts of which are handed out."""

    def __init__(self, length: int) -> None:
        self.length = length
        memory = np.empty(length + LINE, np.uint8)
        first = -memory.ctypes.data % LINE  # aligned to cache lines: misaligned products are slower
        self._memory = memory[first : first + length].data
        self._starts: list[int] = []  # of the parts handed out last, ascending; none overlap
        self._blocks: list[Block] = []

    def block(self, start: int, size: int) -> Block | None:
        """Hand out a part, unless some of it is in use."""
        first = bisect_right(self._starts, start)
        if first and self._starts[first - 1] + len(self._blocks[first - 1]) > start:
            first -= 1
        last = bisect_left(self._starts, start + size)
        for index in range(first, last):
            if getrefcount(self._blocks[index]) > 2:  # references: the list, and the argument
                return None
        # A separate array with its own reference count: a view would count as a reference to the arena. And a
        # new one each time: a weak reference then shows that the memory has been handed out again.
        block = np.frombuffer(self._memory[start : start + size], np.uint8)
        self._starts[first:last], self._blocks[first:last] = [start], [block]
        return block
