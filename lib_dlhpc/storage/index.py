"""The in-memory index of a store: location and size of each file, contents of each folder.

On disk it is two files beside the partitions: `manifest.json` for people and checks, `index.npz` with one array a
column and all names in one blob, so that a million files load in about a second.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib_dlhpc.spec.unpack import check_npz
from lib_dlhpc.storage.codecs import CODECS, MOST
from lib_dlhpc.storage.errors import StoreError
from lib_dlhpc.storage.names import check_all, to_bytes, to_text

FORMAT = 1
MANIFEST, INDEX = "manifest.json", "index.npz"
COLUMNS = {  # of a file; B, ns since 1970
    "partition": np.int32,
    "offset": np.int64,
    "stored": np.int64,
    "size": np.int64,
    "codec": np.uint8,
    "checksum": np.uint64,
    "mtime": np.int64,
}


class PartitionFile(NamedTuple):
    """A partition on disk: its file's name, B, SHA-256 of all of it."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Summary of a store: sizes in B, content before and after compression."""

    files: int
    folders: int
    size: int
    stored: int
    codec: str
    partitions: tuple[PartitionFile, ...]
    index_sha256: str


class Entry(NamedTuple):
    """A file's row of the index."""

    partition: int
    offset: int
    stored: int
    size: int
    codec: int
    checksum: int
    mtime: int


@dataclass(frozen=True)
class Index:
    """All files of a store, sorted by folder, then name: one array a column (see COLUMNS), and their names.

    folders: names, the store itself first, named ''. folder_mtime: ns. The index of a file is its number.
    """

    names: tuple[str, ...]
    columns: dict[str, np.ndarray]
    folders: tuple[str, ...]
    folder_mtime: np.ndarray

    @cached_property
    def numbers(self) -> dict[str, int]:
        """File numbers by name."""
        return dict(zip(self.names, range(len(self.names)), strict=True))

    @cached_property
    def folder_numbers(self) -> dict[str, int]:
        """Folder numbers by name."""
        return {name: number for number, name in enumerate(self.folders)}

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """Entry names by folder, sorted, without the path."""
        found: dict[str, list[str]] = {name: [] for name in self.folders}
        for name in (*self.folders[1:], *self.names):
            above, _, last = name.rpartition("/")
            found[above].append(last)
        for held in found.values():
            held.sort()
        return found

    def entry(self, number: int) -> Entry:
        """Return the row of a file."""
        return Entry(*(column[number].item() for column in self.columns.values()))


def save(index: Index, folder: Path) -> str:
    """Write the index into a folder, to the disk itself, and return its SHA-256."""
    path = folder / INDEX
    with open(path, "wb") as file:
        np.savez(
            file,
            allow_pickle=False,
            names=_blob(index.names),
            folders=_blob(index.folders[1:]),
            folder_mtime=index.folder_mtime,
            **index.columns,
        )
        file.flush()
        os.fsync(file.fileno())
    return sha256(path)


def save_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest into a folder, to the disk itself."""
    content = asdict(manifest)
    content["partitions"] = [partition._asdict() for partition in manifest.partitions]
    with open(folder / MANIFEST, "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **content}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def load_manifest(target: Path) -> Manifest:
    """Read a store's manifest. Raises StoreError."""
    path = target / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format") != FORMAT:
            raise StoreError(f"{path}: this version reads stores of format {FORMAT} only.")
        content["partitions"] = tuple(PartitionFile(**part) for part in content["partitions"])
        manifest = Manifest(**content)
    except OSError as error:
        raise StoreError(
            f"{target} is not a packed store: {path}: {error.strerror}. `pack` creates one."
        ) from None
    except StoreError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{path} is damaged: {error}.") from None
    for part in manifest.partitions:
        if Path(part.name).name != part.name or part.name in ("", ".", ".."):
            raise StoreError(f"{path}: {part.name!r} is not the name of a partition.")
    return manifest


def load(target: Path, manifest: Manifest) -> Index:
    """Read a store's index and verify it against its manifest. Raises StoreError."""
    path = target / INDEX
    try:
        if sha256(path) != manifest.index_sha256:
            raise StoreError(f"{path} is damaged: its SHA-256 is not the manifest's.")
        check_npz(path)
        with np.load(path, allow_pickle=False) as arrays:
            columns = {name: arrays[name].astype(kind) for name, kind in COLUMNS.items()}
            blobs = [arrays[name].tobytes() for name in ("names", "folders")]
            folder_mtime = arrays["folder_mtime"]
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}.") from None
    except (ValueError, KeyError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{path} is damaged: {error}.") from None
    for blob in blobs:
        check_all(blob)
    names, folders = (tuple(to_text(blob).split("\0")) if blob else () for blob in blobs)
    index = Index(names, columns, ("", *folders), folder_mtime)
    _check(index, manifest, path)
    return index


def _check(index: Index, manifest: Manifest, path: Path) -> None:
    """Raise StoreError at the first file outside its partition, or above its codec's maximum compression ratio.

    Readers allocate memory by the sizes in the index.
    """
    columns = index.columns
    lengths = {name: len(column) for name, column in columns.items()}
    lengths |= {"folder_mtime": len(index.folder_mtime) + len(index.names) - len(index.folders)}
    wrong = [name for name, length in lengths.items() if length != len(index.names)]
    if wrong:
        raise StoreError(f"{path} is damaged: {len(index.names)} names, another length of {wrong}.")
    part, offset, stored, size, codec = (
        columns[name] for name in ("partition", "offset", "stored", "size", "codec")
    )
    known = (part >= 0) & (part < len(manifest.partitions)) & (codec < len(CODECS))
    held = np.array([file.size for file in manifest.partitions] or [0], np.int64)
    held = held[np.where(known, part, 0)]
    times = np.array(MOST)[np.where(known, codec, 0)]
    inside = (offset >= 0) & (stored >= 0) & (stored <= held) & (offset <= held - stored)
    sound = (size >= 0) & (-(-size // times) <= stored) & ((codec > 0) | (size == stored))
    bad = np.flatnonzero(~(known & inside & sound))
    if bad.size:
        row = index.entry(int(bad[0]))
        raise StoreError(
            f"{path} is damaged: {index.names[bad[0]]!r} cannot be as it says, of {held[bad[0]]:,} B"
            f" of its partition: {row}."
        )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _blob(names: Iterable[str]) -> np.ndarray:
    return np.frombuffer(b"\0".join(map(to_bytes, names)), np.uint8)
