"""The arrays of a version, read back: every byte is verified."""

from collections.abc import Iterator

import numpy as np

from lib_dlhpc.storage.memory import available
from lib_dlhpc.storage.snapshots.chunks import Array
from lib_dlhpc.storage.snapshots.files import SnapshotError
from lib_dlhpc.storage.snapshots.objects import Damaged, Objects
from lib_dlhpc.storage.snapshots.version import Version


def read_arrays(objects: Objects, version: Version) -> dict[str, Array]:
    """Return the arrays by name. Raises SnapshotError."""
    arrays = {}
    for name, stored in version.arrays.items():
        if stored.size > available():
            raise SnapshotError(
                f"{version.name}, {name}: not enough memory for its {stored.size:,} B."
            )
        there = sum(objects.where[key].length for key in stored.chunks if key in objects.where)
        flat, start = bytearray(min(stored.size, there)), 0
        for data in read_chunks(objects, version, name):
            flat[start : start + len(data)] = data
            start += len(data)
        arrays[name] = np.frombuffer(flat, stored.dtype).reshape(stored.shape)
    return arrays


def read_chunks(objects: Objects, version: Version, name: str) -> Iterator[bytes]:
    """Yield the bytes of one array, a chunk at a time.

    Raises SnapshotError that names version, array and object.
    """
    if name not in version.arrays:
        held = ", ".join(version.arrays)
        raise SnapshotError(f"{version.name}: holds no {name!r}; it holds {held}.")
    stored = version.arrays[name]
    if any(key not in objects.where for key in stored.chunks):
        objects.refresh()
    left = stored.size
    try:
        with objects.reading() as read:
            for key in stored.chunks:
                data = read(key)
                if len(data) != min(stored.chunk, left):
                    raise Damaged(f"chunk {key.hex()}: {len(data)} B, not {stored.chunk}")
                left -= len(data)
                yield data
        if left:
            raise Damaged(f"its chunks lack {left} B")
    except Damaged as error:
        raise SnapshotError(f"{version.name}, {name}: {error}.") from None
