"""Legal file names in a store, and a walk over a tree that yields them."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lib_dlhpc.storage.errors import StoreError

# In a blob of names, separated by NUL: a part that is empty, `.` or `..`; so also what begins or ends with `/`.
_BAD_PART = re.compile(rb"(?:\A|\0|/)\.{0,2}(?=\0|/|\Z)")


class Found(NamedTuple):
    """A folder or file of a tree: its name in the store, where it lies, B, ns since 1970."""

    name: str
    path: str
    size: int
    mtime: int


def checked(name: str) -> str:
    """Return `name` if a store may have it: parts joined by `/`, none of them empty, `.` or `..`. Raises StoreError."""
    if "\0" in name or not name or _BAD_PART.search(to_bytes(name)):
        raise StoreError(
            f"{name!r} cannot be a name in a store. Legal: parts joined by '/', relative, none of them "
            "empty, '.' or '..', without NUL."
        )
    return name


def check_all(blob: bytes) -> None:
    """Check a blob of names, separated by NUL. Raises StoreError naming the first bad one."""
    bad = _BAD_PART.search(blob) if blob else None
    if bad:
        start = blob.rfind(b"\0", 0, bad.end()) + 1
        checked(to_text(blob[start:].split(b"\0", 1)[0]))
        raise StoreError("A name in a store's index is empty.")


def to_bytes(name: str) -> bytes:
    """Return a name as the file system has it, bytes that are no UTF-8 included."""
    return name.encode("utf-8", "surrogateescape")


def to_text(name: bytes) -> str:
    """Return the name that `to_bytes` turns into these bytes."""
    return name.decode("utf-8", "surrogateescape")


def walk(tree: Path) -> tuple[list[Found], list[Found]]:
    """Return the folders (the tree itself first, named '') and the files under `tree`, sorted by folder, then name.

    Links inside the tree are followed. Raises StoreError for a link that leads out of the tree, to nothing or
    round in a circle, for what is neither file nor folder, and for what may not be read.
    """
    root = os.path.realpath(tree)
    folders: list[Found] = []
    files: list[Found] = []
    waiting: list[tuple[str, str, tuple[str, ...]]] = [("", root, (root,))]
    while waiting:
        name, path, above = waiting.pop()
        try:
            folders.append(Found(name, path, 0, os.stat(path).st_mtime_ns))
            for child, real, status in _children(root, name, path):
                if not stat.S_ISDIR(status.st_mode):
                    files.append(Found(child, real, status.st_size, status.st_mtime_ns))
                elif real in above:
                    raise StoreError(f"{child!r} is a link that leads in a circle, to {real}.")
                else:
                    waiting.append((child, real, (*above, real)))
        except OSError as error:
            raise StoreError(f"{error.filename or path}: {error.strerror}.") from None
    return sorted(folders), sorted(files, key=lambda file: os.path.split(file.name))


def _children(root: str, folder: str, path: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield (name in the store, real path, status) of what is in a folder."""
    with os.scandir(path) as entries:
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
            if entry.is_symlink() and os.path.commonpath([root, real]) != root:
                raise StoreError(f"{name!r} is a link that leads out of the tree, to {real}.")
            try:
                status = os.stat(real)
            except OSError as error:
                raise StoreError(f"{name!r}, at {real}: {error.strerror}.") from None
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                raise StoreError(
                    f"{name!r} is neither a file nor a folder; a store holds only these."
                )
            yield name, real, status
