"""A stream of arrays, cut into content-addressed chunks (named by their hash).

An array is cut at fixed offsets, so unchanged data gives the same chunks. An array has about a hundred chunks:
then little more is written than has changed, and a version's record stays small.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from xxhash import xxh3_128_digest

from lib_dlhpc.storage.snapshots.files import SnapshotError

HASH = 16  # bytes: two different chunks have the same one with a chance of 1 in 2^128
SMALLEST, LARGEST = 4096, 1024 * 1024  # bytes of a chunk
MOST = 128  # chunks of an array, until they are LARGEST

Array: TypeAlias = np.ndarray[Any, Any]
Bytes: TypeAlias = bytes | bytearray | memoryview


class Stream(NamedTuple):
    """An array in parts, in the order of its elements."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    arrays: Iterable[Array]

    @property
    def size(self) -> int:
        """Return the bytes of the full array."""
        return prod(self.shape) * int(np.dtype(self.dtype).itemsize)


def hashed(data: Bytes) -> bytes:
    """Return the hash of a chunk (XXH3 of 128 bits, Collet 2019): it detects damage, not forgery."""
    return bytes(xxh3_128_digest(data))


def chunk_size(size: int) -> int:
    """Return the bytes of a chunk, for an array of `size` bytes: a power of two."""
    chunk = SMALLEST
    while chunk < LARGEST and chunk * MOST < size:
        chunk *= 2
    return chunk


def streams(arrays: Mapping[str, Array] | Iterable[Stream]) -> Iterator[Stream]:
    """Yield arrays as streams. Raises SnapshotError for what cannot be stored as plain numbers."""
    if isinstance(arrays, Mapping):
        found = {name: np.asarray(array) for name, array in arrays.items()}
        arrays = (Stream(name, array.shape, array.dtype, [array]) for name, array in found.items())
    seen = set()
    for stream in arrays:
        dtype = np.dtype(stream.dtype)
        if dtype.hasobject or dtype.names or dtype.subdtype:
            raise SnapshotError(
                f"{stream.name}: {dtype}: expected numbers, or text of fixed length."
            )
        if not stream.name or stream.name in seen:
            raise SnapshotError(f"{stream.name!r}: expected a name of its own for each array.")
        seen.add(stream.name)
        yield stream


def cut(stream: Stream, chunk: int) -> Iterator[Bytes]:
    """Yield the chunks of a stream; each is good until the next is asked for.

    Raises SnapshotError if the parts do not add up to the array.
    """
    begun, total = bytearray(), 0
    for array in stream.arrays:
        flat = bytes_of(array)
        total += len(flat)
        start = 0
        if begun:
            start = min(chunk - len(begun), len(flat))
            begun += flat[:start]
            if len(begun) == chunk:
                yield begun
                begun = bytearray()
        while len(flat) - start >= chunk:
            yield flat[start : start + chunk]
            start += chunk
        begun += flat[start:]
    if begun:
        yield begun
    if total != stream.size:
        raise SnapshotError(
            f"{stream.name}: {total} B were given, its shape needs {stream.size} B."
        )


def bytes_of(array: Any) -> memoryview:
    """Return the bytes of an array in the order of its elements; a copy only if it is not contiguous."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")
