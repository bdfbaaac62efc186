"""Room: memory that is used again. Fresh memory costs a page fault every 4 KiB."""

from bisect import bisect_left, insort
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALL = 32 * 1024  # bytes; below this the system's own memory is as quick
FINE = 4  # 16 sizes of block from one power of 2 to the next, so that a slightly larger array fits


class Room:
    """Blocks of memory for arrays; a block is free as soon as no array lies in it.

    Python counts who holds a block, so nobody gives anything back, and nothing in use is given away.
    """

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.uint8]] = []  # from the smallest to the largest

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array to write to, in the smallest free block that holds it and is not far too large."""
        size = prod(shape) * np.dtype(dtype).itemsize
        if size < SMALL:
            return np.empty(shape, dtype)
        blocks = self._blocks
        place = bisect_left(blocks, size, key=len)
        while place < len(blocks) and len(blocks[place]) <= 2 * size:
            if getrefcount(blocks[place]) == 2:  # the list, and the question itself
                return blocks[place][:size].view(dtype).reshape(shape)
            place += 1
        grain = 1 << max(0, size.bit_length() - 1 - FINE)
        block = np.empty(-(-size // grain) * grain, np.uint8)
        insort(blocks, block, key=len)
        return block[:size].view(dtype).reshape(shape)
