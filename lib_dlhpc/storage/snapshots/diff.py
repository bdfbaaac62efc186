"""Differences of two versions, array by array: shared bytes and relative difference."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from lib_dlhpc.storage.snapshots.chunks import Array
from lib_dlhpc.storage.snapshots.version import Stored, Version

if TYPE_CHECKING:
    from lib_dlhpc.storage.snapshots.store import SnapshotStore


@dataclass(frozen=True)
class Difference:
    """One array of two versions, a and b.

    kind: "shared": the same bytes. size: B, in b if it exists there. shared: B that a has as well.
    relative: |b - a| / |a|, Euclidean norms; NaN for integers and text, which are the state of
    a run, and where they cannot be subtracted.
    """

    name: str
    kind: Literal["shared", "changed", "first only", "second only"]
    size: int
    shared: int
    relative: float


def difference(store: "SnapshotStore", first: Version, second: Version) -> list[Difference]:
    """Return the differences, in the order of the arrays. Raises SnapshotError."""
    rows = []
    for name in {**second.arrays, **first.arrays}:
        a, b = first.arrays.get(name), second.arrays.get(name)
        if a is None or b is None:
            there = a or b
            assert there is not None
            kind: Literal["first only", "second only"] = "first only" if a else "second only"
            rows.append(Difference(name, kind, there.size, 0, math.nan))
        elif a == b:
            rows.append(Difference(name, "shared", b.size, b.size, 0.0))
        else:
            relative = math.nan
            if (a.shape, a.dtype) == (b.shape, b.dtype) and np.dtype(a.dtype).kind in "fc":
                relative = _relative(_numbers(store, first, name), _numbers(store, second, name))
            rows.append(Difference(name, "changed", b.size, _shared(a, b), relative))
    return rows


def _shared(a: Stored, b: Stored) -> int:
    keys, last = set(a.chunks), len(b.chunks) - 1
    sizes = [b.chunk] * last + [b.size - b.chunk * last]
    return sum(size for key, size in zip(b.chunks, sizes, strict=True) if key in keys)


def _numbers(store: "SnapshotStore", version: Version, name: str) -> Iterator[Array]:
    """Yield the numbers of an array, a chunk at a time, in double precision."""
    dtype = np.dtype(version.arrays[name].dtype)
    wide = np.complex128 if dtype.kind == "c" else np.float64
    for data in store.chunks(version, name):  # a chunk is a power of two, so it splits no element
        yield np.frombuffer(data, dtype).astype(wide)


def _relative(first: Iterator[Array], second: Iterator[Array]) -> float:
    apart = length = 0.0
    for a, b in zip(first, second, strict=True):
        apart += float(np.sum(np.abs(b - a) ** 2))
        length += float(np.sum(np.abs(a) ** 2))
    return math.sqrt(apart / length) if length else math.inf
