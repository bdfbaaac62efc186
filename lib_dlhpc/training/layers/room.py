"""Room: memory that is used again. Fresh memory costs a page fault every 4 KiB.

All passes over batches of one size ask for the same arrays in the same order and let go of them at the
same moments. The first gets fresh memory and is watched. In those that follow each array has its place in
one stretch of memory, beside those that live when it does and over those that do not (Sekiyama et al.
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

from lib_dlhpc.training.layers.places import LINE, Life, places

SMALL = 32 * 1024  # bytes; below this the system's own memory is as quick
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

Block = NDArray[np.uint8]


class Room:
    """Memory for the arrays of a network's passes; a place is free as soon as no array lies in it.

    Python counts who holds an array, so nobody gives anything back. Where somebody still looks at what
    lies in an array's place, and where a pass asks for something new, memory is fresh: nothing in use is
    given away.
    """

    def __init__(self) -> None:
        self._plans: dict[Hashable, list[tuple[int, int]]] = {}  # place and size, for each array
        self._lengths: dict[Hashable, int] = {}
        self._key: Hashable = None
        self._watch: _Watch | None = None
        self._next = 0  # number of the array that the pass will ask for next
        self._stretch = _Stretch(0)

    def begin(self, key: Hashable) -> None:
        """A pass begins; those with the same key ask for the same arrays.

        Networks that share a room begin one after the other, before any of them asks for an array.
        """
        if key == self._key and not (self._next if self._watch is None else self._watch.seen):
            return
        if self._watch is not None:
            lives = self._watch.end()
            starts, self._lengths[self._key] = places(lives)
            sizes = (life.size for life in lives)
            self._plans[self._key] = list(zip(starts, sizes, strict=True))
        self._key, self._next, self._watch = key, 0, None
        if key not in self._plans:
            self._stretch = _Stretch(0)  # what is watched may take as much
            self._watch = _Watch()
        elif self._stretch.length < max(self._lengths.values()):
            self._stretch = _Stretch(0)
            give_back()
            self._stretch = _Stretch(max(self._lengths.values()))

    def rest(self) -> None:
        """Have no memory until the next pass begins; nobody may hold an array."""
        self._key, self._watch, self._stretch = None, None, _Stretch(0)
        give_back()

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array to write to."""
        size = prod(shape) * np.dtype(dtype).itemsize
        if size < SMALL:
            return np.empty(shape, dtype)
        block = self._planned(size) if self._watch is None else self._watch.block(size)
        if block is None:
            return np.empty(shape, dtype)
        return block.view(dtype).reshape(shape)

    def _planned(self, size: int) -> Block | None:
        """Return the memory that the plan has for the next array, if it is free."""
        plan, number = self._plans.get(self._key, []), self._next
        self._next += 1
        if number < len(plan) and plan[number][1] == size:
            return self._stretch.block(*plan[number])
        self._plans.pop(self._key, None)  # not what was watched: the next pass is watched anew
        self._lengths.pop(self._key, None)
        return None


def give_back() -> None:
    """Let the system have what the allocator still keeps of memory that nobody uses: glibc may keep 64 MB."""
    if TRIM is not None:
        TRIM(0)


class _Watch:
    """Who asks for memory, and when nobody holds it any more."""

    def __init__(self) -> None:
        self._lives: list[Life] = []
        self._living: list[int] = []  # numbers of arrays
        self._blocks: list[Block] = []  # of these

    @property
    def seen(self) -> int:
        """How many arrays have been asked for."""
        return len(self._lives)

    def block(self, size: int) -> Block:
        """Return fresh memory, from the system itself: an allocator would keep it when it is let go."""
        self._bury()
        self._living.append(len(self._lives))
        self._blocks.append(np.frombuffer(mmap(-1, size, access=ACCESS_COPY), np.uint8))
        self._lives.append(Life(size, len(self._lives), inf))
        return self._blocks[-1]

    def end(self) -> list[Life]:
        """Return all that was asked for; who lives on even now must have a place apart."""
        self._bury()
        for number in self._living:
            self._lives[number] = self._lives[number]._replace(born=-inf)
        return self._lives

    def _bury(self) -> None:
        for index in reversed(range(len(self._blocks))):
            if getrefcount(self._blocks[index]) == 2:  # the list, and the question itself
                number = self._living.pop(index)
                self._lives[number] = self._lives[number]._replace(died=len(self._lives))
                del self._blocks[index]


class _Stretch:
    """One piece of memory, parts of which are lent."""

    def __init__(self, length: int) -> None:
        self.length = length
        memory = np.empty(length + LINE, np.uint8)
        first = -memory.ctypes.data % LINE  # products are slower where a line lies in two
        self._memory = memory[first : first + length].data
        self._starts: list[int] = []  # of the parts lent last, from the lowest on; none overlap
        self._blocks: list[Block] = []

    def block(self, start: int, size: int) -> Block | None:
        """Lend a part, unless somebody has some of it."""
        first = bisect_right(self._starts, start)
        if first and self._starts[first - 1] + len(self._blocks[first - 1]) > start:
            first -= 1
        last = bisect_left(self._starts, start + size)
        for index in range(first, last):
            if getrefcount(self._blocks[index]) > 2:  # the list, and the question itself
                return None
        # An array of its own, which has its own count: a view would be one more of the stretch. And a
        # new one each time: whoever has a weak reference sees that the memory is lent to somebody else.
        block = np.frombuffer(self._memory[start : start + size], np.uint8)
        self._starts[first:last], self._blocks[first:last] = [start], [block]
        return block
