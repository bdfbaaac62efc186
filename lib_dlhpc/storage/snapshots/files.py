"""Atomic file writes, and a lock for one writer at a time.

A file is written under a temporary name, flushed to disk and renamed; then the folder is flushed, or a
power failure could lose the new name. A killed process leaves the temporary file, which the next writer removes;
the system releases its lock.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from lib_dlhpc.errors import SpecError

PATIENCE = 120.0  # s that a writer waits for another
PAUSE = 0.005  # s between two tries
RUIN = ".tmp"
FOLDERS = ("objects", "versions", "branches", "tags")
BUFFER = 128 * 1024  # bytes that go to the system at once


class SnapshotError(SpecError):
    """A version that cannot be written or read: names the version, the array and the object."""


@contextmanager
def written_whole(
    path: Path,
    named: Callable[[], Path] | None = None,
    first: Iterable[Path] = (),
    last: bool = True,
) -> Iterator[IO[bytes]]:
    """Yield a file that replaces `path` when all is written; a failure leaves nothing.

    named: returns the path at the end, for a file named by its content. first: folders to flush before the
    rename. last: whether to flush this file's folder. Raises OSError that names the path.
    """
    temporary = path.with_name(f".{path.name}{RUIN}")
    try:
        with open(temporary, "wb", BUFFER) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        for folder in first:
            flush_folder(folder)
        os.replace(temporary, named() if named else path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    if last:
        flush_folder(path.parent)


def write(path: Path, data: bytes, first: Iterable[Path] = (), last: bool = True) -> None:
    """Replace a small file atomically and flush it to disk. See written_whole."""
    with written_whole(path, first=first, last=last) as file:
        file.write(data)


def remove(path: Path) -> None:
    """Remove a file for good."""
    path.unlink(missing_ok=True)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clear_ruins(folder: Path) -> None:
    """Remove incomplete files of killed writers. Only the holder of the lock may call this."""
    for place in (folder, *(folder / name for name in FOLDERS)):
        for name in os.listdir(place) if place.is_dir() else ():
            if name.startswith(".") and name.endswith(RUIN):
                (place / name).unlink(missing_ok=True)


def names(folder: Path) -> list[str]:
    """Return the names of the complete files in a folder, sorted; none if there is no folder."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        return []


@contextmanager
def one_writer(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the folder's lock; another process, or another store of this one, waits until it is free.

    Raises SnapshotError after `patience` s. No locking where files cannot be locked (Windows).
    """
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:
        yield
        return
    until = time.monotonic() + patience
    with open(folder / "lock", "ab") as file:
        while True:
            try:
                flock(file, LOCK_EX | LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise SnapshotError(
                        f"{folder}: another process has been writing for {patience:g} s; wait for it"
                        " or end it."
                    ) from None
                time.sleep(PAUSE)
        yield
