"""Version: the record of a saved state, and its place in the tree of versions."""

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.storage.snapshots.chunks import HASH
from lib_dlhpc.storage.snapshots.files import SnapshotError

SHORT = 7  # digits of an id that people see
# As numpy writes them; deprecated aliases, which a flipped bit may give, are none.
DTYPE = re.compile(r"[<>|=][biufcmMSUV]\d+(\[\w+\])?")
Metrics: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Stored:
    """An array of a version: its type and shape, and the hashes of its chunks of `chunk` B (the last is shorter)."""

    dtype: str
    shape: tuple[int, ...]
    chunk: int
    chunks: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Return how many bytes the array has."""
        return prod(self.shape) * int(np.dtype(self.dtype).itemsize)


@dataclass(frozen=True)
class Version:
    """A saved state. Its id is the hash of its content and its parent's id, so of its history.

    number: 1, 2, ... in the order of saving. parent: an id, or "" at the root. branch: the one it
    was saved on. metrics: finite numbers by name. written: new B. time: s since 1970.
    """

    id: str
    number: int
    parent: str
    branch: str
    step: int
    metrics: Metrics = field(default_factory=dict)
    arrays: Mapping[str, Stored] = field(default_factory=dict)
    written: int = 0
    time: float = 0.0

    @property
    def short(self) -> str:
        """Return the first digits of the id."""
        return self.id[:SHORT]

    @property
    def size(self) -> int:
        """Return how many bytes all arrays have."""
        return sum(array.size for array in self.arrays.values())

    @property
    def name(self) -> str:
        """Return its name in messages."""
        return f"version {self.number} ({self.short})"


def make(
    number: int,
    parent: str,
    branch: str,
    step: int,
    metrics: Metrics,
    arrays: Mapping[str, Stored],
    written: int,
) -> Version:
    """Return a version with the id that follows from its content."""
    identity = _identity(parent, step, metrics, arrays)
    return Version(
        identity, number, parent, branch, step, dict(metrics), dict(arrays), written, time.time()
    )


def numbers(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the metrics that are finite numbers. Raises SnapshotError for one that is no number."""
    found = {}
    for name, value in (metrics or {}).items():
        if value is None:
            continue
        if isinstance(value, str | bytes) or not np.isscalar(value):
            raise SnapshotError(f"metrics: {name} = {value!r}: expected a number.")
        if math.isfinite(float(value)):  # type: ignore[arg-type]
            found[name] = float(value)  # type: ignore[arg-type]
    return found


def to_bytes(version: Version) -> bytes:
    """Return a version as one line of JSON that ends with its own checksum."""
    table = _content(version.parent, version.step, version.metrics, version.arrays)
    table |= {"id": version.id, "number": version.number, "branch": version.branch}
    table |= {"written": version.written, "time": version.time}
    return _dumped(table | {"sum": _hex(_dumped(table))}) + b"\n"


def read_version(path: Path) -> Version:
    """Read a version; the file is named by its id. Raises SnapshotError if any byte has changed."""
    try:
        data = path.read_bytes()
        table = json.loads(data)
        arrays = {name: _stored(entry) for name, entry in table["arrays"].items()}
        version = Version(
            table["id"],
            table["number"],
            table["parent"],
            table["branch"],
            table["step"],
            table["metrics"],
            arrays,
            table["written"],
            table["time"],
        )
        content = _identity(version.parent, version.step, version.metrics, version.arrays)
        whole = to_bytes(version) == data and content == version.id == path.stem
    except OSError as error:
        raise SnapshotError(f"version {path.stem[:SHORT]}: {path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SyntaxError):
        whole = False
    if not whole:
        raise SnapshotError(f"version {path.stem[:SHORT]}: {path}: cut short or changed.")
    return version


def _content(
    parent: str, step: int, metrics: Metrics, arrays: Mapping[str, Stored]
) -> dict[str, Any]:
    """Return the hashed content; time and branch are not part of it."""
    entries = {
        name: {
            "dtype": array.dtype,
            "shape": list(array.shape),
            "chunk": array.chunk,
            "chunks": b"".join(array.chunks).hex(),
        }
        for name, array in arrays.items()
    }
    return {"parent": parent, "step": step, "metrics": dict(metrics), "arrays": entries}


def _identity(parent: str, step: int, metrics: Metrics, arrays: Mapping[str, Stored]) -> str:
    return _hex(_dumped(_content(parent, step, metrics, arrays)))


def _stored(entry: dict[str, Any]) -> Stored:
    data = bytes.fromhex(entry["chunks"])
    chunks = tuple(data[start : start + HASH] for start in range(0, len(data), HASH))
    stored = Stored(entry["dtype"], tuple(entry["shape"]), entry["chunk"], chunks)
    whole = all(type(n) is int and n >= 0 for n in (*stored.shape, stored.chunk - 1))
    if not whole or type(stored.dtype) is not str or not DTYPE.fullmatch(stored.dtype):
        raise ValueError("no array of numbers")
    np.dtype(stored.dtype)
    if len(data) != HASH * -(-stored.size // stored.chunk):
        raise ValueError("its chunks are more or less than the array")
    return stored


def _dumped(table: dict[str, Any]) -> bytes:
    return json.dumps(table, separators=(",", ":"), allow_nan=False).encode()


def _hex(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=HASH).hexdigest()
