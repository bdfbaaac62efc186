"""Files that are whole or not there: written under a temporary name in the same folder, then renamed.

An error names the file: that of a full disk, as the system raises it, does not.
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
    """Give a path to write a file to, or a folder; it becomes `path` at the end, and goes if there is an error.

    What was at `path` is replaced: whoever calls has looked whether it may be. guarded: for what takes long to
    write; nothing of it is left where this process is killed. Raises OSError that names `path`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with owned.unfinished(temporary, guarded), naming(path):
        yield temporary
        if path.is_dir() and not path.is_symlink():
            old = path.with_name(f".{path.name}.{os.getpid()}.old")
            os.rename(path, old)  # a folder that holds something cannot be renamed onto
            os.rename(temporary, path)
            shutil.rmtree(old)
        else:
            os.replace(temporary, path)


def write_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a small file, whole or not at all. Raises OSError that names it."""
    with replacing(path) as temporary:
        temporary.touch(mode)
        temporary.write_text(text, encoding="utf-8")


def write_status(path: Path, text: str, spare: Path | None = None, mode: int = 0o666) -> None:
    """Write what must be known although the disk is full: into the space that the file has already.

    spare: a file that gives its space, for one that is not there yet; it is then gone. Raises OSError.
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
    """Remove what programs that were killed have left of files in a folder, in which nobody writes now."""
    for left in folder.glob(".*.tmp"):
        with suppress(OSError):
            left.unlink()
