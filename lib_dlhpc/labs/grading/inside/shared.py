"""Arrays that both ends of a socket hold: with every message, each end sends the bytes that it has changed.

The learner's process passes an array to `comm.Irecv` once and reads it after `request.Wait()`; the checker records
whether a buffer was written to before that. Both work across processes because the array is on either side.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np


class Shared:
    """The arrays, by number. first, step: of the numbers that this end gives."""

    def __init__(self, first: int, step: int) -> None:
        self._next, self._step = first, step
        self._arrays: dict[int, Any] = {}
        self._known: dict[int, bytes] = {}  # what the other end has

    def add(self, array: Any) -> int:
        """Share an array; return its number."""
        number, self._next = self._next, self._next + self._step
        self.take(number, array)
        return number

    def take(self, number: int, array: Any) -> None:
        """Hold an array that the other end has shared, or will share, as it is now."""
        self._arrays[number], self._known[number] = array, array.tobytes()

    def __getitem__(self, number: int) -> Any:
        return self._arrays[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._arrays)

    def drop_but(self, numbers: set[int]) -> None:
        """Forget all other arrays."""
        for number in set(self._arrays) - numbers:
            del self._arrays[number], self._known[number]

    def changed(self) -> list[Any]:
        """Return [number, bytes as an array] of what has changed since the last message."""
        result = []
        for number, array in self._arrays.items():
            now = array.tobytes()
            if now != self._known[number]:
                self._known[number] = now
                result.append([number, np.frombuffer(now, np.uint8)])
        return result

    def apply(self, changes: Any) -> None:
        """Write what the other end has changed. Raises ValueError and the like where it does not fit."""
        for number, data in changes:
            array, raw = self._arrays[number], data.tobytes()
            if len(raw) != array.nbytes:
                raise ValueError(f"{len(raw)} bytes for an array of {array.nbytes}")
            array[...] = np.frombuffer(raw, array.dtype).reshape(array.shape)
            self._known[number] = raw

    def view(self, array: Any) -> tuple[int, int] | None:
        """Return (number, first element) of the shared array that a contiguous array is a part of, if any."""
        start = _address(array)
        for number, whole in self._arrays.items():
            offset = start - _address(whole)
            inside = offset >= 0 and offset + array.nbytes <= whole.nbytes
            if inside and whole.dtype == array.dtype and whole.flags.c_contiguous:
                return number, offset // whole.itemsize
        return None


def root(array: Any) -> Any:
    """Return the contiguous array of the same type that an array is a view of, or the array itself."""
    found = array
    while isinstance(array.base, np.ndarray):
        array = array.base
        if array.dtype == found.dtype and array.flags.c_contiguous and array.flags.writeable:
            found = array
    return found


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
