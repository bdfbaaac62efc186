"""Packing: a tree of files becomes a few partitions, an index and a manifest, atomically."""

import hashlib
import heapq
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lib_dlhpc.storage.checksum import checksum
from lib_dlhpc.storage.codecs import code_of, compress
from lib_dlhpc.storage.errors import AlreadyThere, StoreError
from lib_dlhpc.storage.index import COLUMNS, Index, Manifest, PartitionFile, save, save_manifest
from lib_dlhpc.storage.names import Found, walk
from lib_dlhpc.storage.unfinished import unfinished


def pack(
    tree: str | os.PathLike[str],
    target: str | os.PathLike[str],
    partitions: int = 8,
    codec: str = "none",
) -> Manifest:
    """Pack a folder into a new folder `target` and return its manifest.

    codec: "none", "zlib" or "zstd"; a file that it does not make smaller is stored as it is. Partitions hold about
    equal bytes. Everything is written beside the target, flushed and renamed; leftovers of a killed packing of
    the same target are removed.
    Raises StoreError (what is not readable, links out of the tree, a full disk), AlreadyThere.
    """
    source, goal = Path(tree), Path(os.path.abspath(target))
    code = code_of(codec)
    if (
        isinstance(partitions, bool)
        or not isinstance(partitions, int)
        or not 1 <= partitions <= 99_999
    ):
        raise StoreError(f"partitions: {partitions!r} is not a whole number from 1 to 99999.")
    if not source.is_dir():
        raise StoreError(f"{source} is not a folder that can be packed.")
    if os.path.lexists(goal):
        raise AlreadyThere(f"{goal} exists already; a store is written once.")
    if Path(os.path.realpath(goal)).is_relative_to(os.path.realpath(source)):
        raise StoreError(f"{goal} is inside the tree to be packed, {source}.")
    folders, files = walk(source)
    try:
        with unfinished(goal) as beside:
            manifest = _write(folders, files, beside, partitions, code, codec)
            _publish(beside, goal)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{goal.parent}: {error.strerror}.") from None
    return manifest


def balanced(sizes: Sequence[int], parts: int) -> list[int]:
    """Return a part for each size, balanced greedily: the largest first, each to the lightest part.

    No part is heavier than 4/3 of the best possible (Graham, SIAM J. Appl. Math. 17, 1969, theorem 2).
    """
    weights = [(0, part) for part in range(parts)]
    found = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        weight, part = weights[0]
        heapq.heapreplace(weights, (weight + sizes[number], part))
        found[number] = part
    return found


def _write(
    folders: list[Found], files: list[Found], folder: Path, partitions: int, code: int, codec: str
) -> Manifest:
    parts = np.array(balanced([file.size for file in files], partitions), np.int32)
    columns = {name: np.zeros(len(files), kind) for name, kind in COLUMNS.items()}
    written = []
    for part in range(partitions):
        numbers = np.flatnonzero(parts == part).tolist()
        written.append(_write_partition(folder, part, numbers, files, columns, code))
    columns["partition"][:] = parts
    index = Index(
        tuple(file.name for file in files),
        columns,
        tuple(folder.name for folder in folders),
        np.array([folder.mtime for folder in folders], np.int64),
    )
    try:
        manifest = Manifest(
            len(files),
            len(folders) - 1,
            int(columns["size"].sum()),
            int(columns["stored"].sum()),
            codec,
            tuple(written),
            save(index, folder),
        )
        save_manifest(manifest, folder)
    except OSError as error:
        raise StoreError(f"The index of the store cannot be written: {error.strerror}.") from None
    return manifest


def _write_partition(
    folder: Path,
    part: int,
    numbers: list[int],
    files: list[Found],
    columns: dict[str, np.ndarray],
    code: int,
) -> PartitionFile:
    name, digest, offset = f"partition-{part:05d}", hashlib.sha256(), 0
    last = "its end"
    try:
        with open(folder / name, "xb") as file:
            for number in numbers:
                found = files[number]
                data = _content(found)
                last = repr(found.name)
                stored, used = compress(data, code)
                file.write(stored)
                digest.update(stored)
                row = (part, offset, len(stored), len(data), used, checksum(stored), found.mtime)
                for column, value in zip(columns.values(), row, strict=True):
                    column[number] = value
                offset += len(stored)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{last} cannot be written into {name}: {error.strerror}.") from None
    return PartitionFile(name, offset, digest.hexdigest())


def _content(found: Found) -> bytes:
    try:
        with open(found.path, "rb") as file:
            return file.read()
    except OSError as error:
        raise StoreError(f"{found.name!r}, at {found.path}: {error.strerror}.") from None


def _publish(beside: Path, goal: Path) -> None:
    try:
        _to_disk(beside)
        if os.path.lexists(goal):  # made meanwhile; a rename would replace an empty folder
            raise AlreadyThere(f"{goal} exists already; a store is written once.")
        os.rename(beside, goal)
        _to_disk(goal.parent)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"{goal} cannot be put in its place: {error.strerror}.") from None


def _to_disk(folder: Path) -> None:
    """Flush a folder (fsync); Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
