"""A temporary folder beside its target: locked while it is written, so that leftovers of killed programs are found."""

import os
import platform
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lib_dlhpc.lifetime import owned

# some file systems keep locks on their machine
HERE = f"{zlib.crc32(platform.node().encode()):08x}"


@contextmanager
def unfinished(goal: Path) -> Iterator[Path]:
    """Make a folder beside `goal`, to be renamed to it; removed at the end if not renamed.

    Leftovers of killed programs of this machine for the same goal are removed first. Raises OSError.
    """
    for left in goal.parent.glob(f".{_literal(goal.name)}.{HERE}-*.unfinished"):
        _remove_if_left(left)
    beside = goal.with_name(f".{goal.name}.{HERE}-{secrets.token_hex(4)}.unfinished")
    # First, as a guard that starts now would inherit our lock.
    with owned.unfinished(beside, guarded=True):
        beside.mkdir()
        lock = _lock(beside)
        try:
            yield beside
        finally:
            if lock is not None:
                os.close(lock)


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _remove_if_left(folder: Path) -> None:
    lock = _lock(folder)
    if lock is not None:  # nobody holds it, and locks work here
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder; return its descriptor, None if another process has it or locks are not supported."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
