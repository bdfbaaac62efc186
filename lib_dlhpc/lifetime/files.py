"""Atomic file writes: under a temporary name in the same folder, then renamed.

Errors name the file: the system's error of a full disk does not.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lib_dlhpc.lifetime import owned

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no space, or this user's or process's limit


@contextmanager
def replacing(path: Path, guarded: bool = False) -> Iterator[Path]:
    """Yield a temporary path for a file or folder; it is renamed to `path` at the end, removed on an error.

    An existing `path` is replaced, a folder only by a folder; the caller checks whether it may be. guarded: for long
    writes, removed by the guard if this process is killed. Raises OSError that names `path`.
    """
    if not path.name:  # . and /
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with owned.unfinished(temporary, guarded), naming(path):
        yield temporary
        if path.is_dir() and not temporary.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if path.is_dir() and not path.is_symlink():
            old = path.with_name(f".{path.name}.{os.getpid()}.old")
            os.rename(path, old)  # rename cannot replace a folder that is not empty
            os.rename(temporary, path)
            shutil.rmtree(old)
        else:
            os.replace(temporary, path)


def write_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a small file atomically. Raises OSError that names it."""
    with replacing(path) as temporary:
        temporary.touch(mode)
        temporary.write_text(text, encoding="utf-8")


def write_status(path: Path, text: str, spare: Path | None = None, mode: int = 0o666) -> None:
    """Write a small file although the disk is full: into space that it already has.

    spare: a file whose space is reused if `path` does not exist; it is removed. Raises OSError.
    """
    try:
        write_text(path, text, mode)
    except OSError as error:
        if error.errno not in FULL:
            raise
        if spare is not None and not path.exists():
            os.replace(spare, path)
        if not path.exists():
            raise
        with naming(path), open(path, "r+b", buffering=0) as file:
            file.write(text.encode("utf-8"))  # one call: a reader sees the old text or the new one
            file.truncate()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError of the block name `path`, unless it names another file."""
    try:
        yield
    except OSError as error:
        named = str(path if error.filename is None else error.filename)
        if error.errno is None or not named.startswith(
            (str(path), str(path.with_name(f".{path.name}.")))
        ):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files of killed programs in a folder without active writers."""
    for left in folder.glob(".*.tmp"):
        with suppress(OSError):
            left.unlink()
