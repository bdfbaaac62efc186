"""Replacements of Python's file functions for paths in a mounted store.

Every function takes the view of the store, the name in it, the path as the caller wrote it, and then the
function's own arguments.
"""

import errno
import os
from collections.abc import Callable, Iterator
from typing import IO, Any

from lib_dlhpc.storage.posix import PosixView


def open_(
    view: PosixView,
    name: str,
    path: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[..., int] | None = None,
) -> IO[Any]:
    """open: see PosixView.open; without file descriptors, `closefd` and `opener` are ignored."""
    return view.open(name, path, mode, buffering, encoding, errors, newline)


def stat_(view: PosixView, name: str, path: Any, **options: Any) -> os.stat_result:
    """os.stat and os.lstat: a store has no symbolic links."""
    return view.status(name, path)


def listdir(view: PosixView, name: str, path: Any) -> list[Any]:
    """os.listdir: names as bytes where the path is bytes."""
    names = view.listing(name, path)
    return [os.fsencode(name) for name in names] if isinstance(os.fspath(path), bytes) else names


class Entry:
    """A directory entry, as os.scandir yields it."""

    __slots__ = ("_stored", "_view", "name", "path")

    def __init__(self, name: Any, path: Any, view: PosixView, stored: str) -> None:
        self.name, self.path, self._view, self._stored = name, path, view, stored

    def __repr__(self) -> str:
        return f"<Entry {self.name!r}>"

    def __fspath__(self) -> Any:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether this is a folder."""
        return self._view.is_dir(self._stored)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether this is a file."""
        return self._view.is_file(self._stored)

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def is_junction(self) -> bool:
        """Return False."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return what os.stat returns."""
        return self._view.status(self._stored, self.path)

    def inode(self) -> int:
        """Return the inode number, as os.stat does."""
        return self.stat().st_ino


class Entries(Iterator[Entry]):
    """What os.scandir returns: an iterator that can be closed, and closes itself after a `with`."""

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> "Entries":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration."""
        self._entries = iter(())


def scandir(view: PosixView, name: str, path: Any) -> Entries:
    """os.scandir."""
    above, names = f"{name}/" if name else "", listdir(view, name, path)
    place = os.path.join(os.fspath(path), names[0])[: -len(names[0])] if names else ""
    return Entries(Entry(name, place + name, view, above + os.fsdecode(name)) for name in names)


def access(view: PosixView, name: str, path: Any, mode: int, **options: Any) -> bool:
    """os.access: everything is readable, folders are writable."""
    allowed = os.R_OK | os.W_OK | os.X_OK if view.is_dir(name) else os.R_OK
    return (view.is_dir(name) or view.is_file(name)) and not mode & ~allowed


def mkdir(view: PosixView, name: str, path: Any, mode: int = 0o777, **options: Any) -> None:
    """os.mkdir."""
    view.make_dir(name, path)


def listxattr(view: PosixView, name: str, path: Any, **options: Any) -> list[str]:
    """os.listxattr: no file has any."""
    view.check(name, path)
    return []


def readlink(view: PosixView, name: str, path: Any, **options: Any) -> str:
    """os.readlink: raises OSError (EINVAL): a store has no links."""
    view.check(name, path)
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)


def exists(view: PosixView, name: str, path: Any) -> bool:
    """os.path.exists and lexists."""
    return view.is_dir(name) or view.is_file(name)


def isdir(view: PosixView, name: str, path: Any) -> bool:
    """os.path.isdir."""
    return view.is_dir(name)


def isfile(view: PosixView, name: str, path: Any) -> bool:
    """os.path.isfile."""
    return view.is_file(name)


def never(view: PosixView, name: str, path: Any) -> bool:
    """os.path.islink and isjunction."""
    return False


# Functions of os whose first argument is a path.
ROUTED: dict[str, Callable[..., Any]] = {
    "stat": stat_,
    "lstat": stat_,
    "listdir": listdir,
    "scandir": scandir,
    "access": access,
    "mkdir": mkdir,
    "listxattr": listxattr,
    "readlink": readlink,
}

# Functions of os.path that on some systems are written in C and bypass os.stat.
ANSWERED: dict[str, Callable[..., Any]] = {
    "exists": exists,
    "lexists": exists,
    "isdir": isdir,
    "isfile": isfile,
    "islink": never,
    "isjunction": never,
}

# Functions of os that change a file system, or return a file descriptor.
REFUSED = (
    *("open", "remove", "unlink", "rmdir", "rename", "replace", "link", "symlink", "truncate"),
    *("chmod", "lchmod", "chown", "lchown", "utime", "chdir", "mkfifo", "mknod", "setxattr"),
)

# Those of them whose path may not exist yet.
MAKING = ("open", "rename", "replace", "link", "symlink", "mkfifo", "mknod")
