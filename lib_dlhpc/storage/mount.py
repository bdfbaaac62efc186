"""A packed store under a path of this process: plain `open`, `os.stat`, `os.listdir` on it go to the store.

    with mounted(store, "/data/train"):
        run(loader, "/data/train")        # written for a plain folder

This is interception in user space, as FanStore does it for C programs. While it lasts, Python's own functions
look at each path: one under the prefix goes to the store, all others to where they always went. pathlib, glob, os.walk,
shutil, numpy.load, json, csv and whatever else takes a path through these functions follow.

Not intercepted: os.open and file descriptors (refused with a clear error), readers in C that open a path
themselves (io.FileIO, numpy.fromfile, HDF5, sqlite3, imports), other programs, and a function stored as a default
argument. A request for a descriptor (numpy.load with mmap_mode, numpy.fromfile of an open file) raises an error
with the alternative.
Forked processes (multiprocessing) read files on their node; a file on another node raises OSError: use threads, or
replicate on each node. They cannot write; a spawned process does not have the mount.
A symbolic link from elsewhere to the prefix is not intercepted either.
"""

import builtins
import errno
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from types import FunctionType
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.storage import calls
from lib_dlhpc.storage.packed import PackedStore
from lib_dlhpc.storage.patches import swap
from lib_dlhpc.storage.posix import PosixView


@dataclass(frozen=True, eq=False)
class Mount:
    """A store under a prefix: its absolute path, the same without symbolic links, and what each path in it contains."""

    places: tuple[str, ...]
    hint: str
    view: PosixView


_mounts: tuple[Mount, ...] = ()  # newest first; replaced as a whole, so that readers need no lock
_changing = Lock()
_routed: dict[Callable[..., Any], Callable[..., Any]] = {}


@contextmanager
def mounted(store: PackedStore, prefix: str | os.PathLike[str]) -> Iterator[str]:
    """Mount `store` under the path `prefix`, for all threads of this process, within the block.

    The prefix need not exist; an existing folder is hidden meanwhile. Files under it are readable, new ones
    write-once ("w", "x"); the store saves those in its folder `written` when it closes. Yields the prefix as an
    absolute path. Raises SpecError for a prefix that is the root, or above the folder that the store is read from;
    calls under it raise the OSErrors of a folder.
    """
    mount = _mount(store, prefix)
    with _changing:
        _set((mount, *_mounts))
    try:
        yield mount.places[0]
    finally:
        with _changing:
            _set(tuple(other for other in _mounts if other is not mount))


def _mount(store: PackedStore, prefix: str | os.PathLike[str]) -> Mount:
    place = os.path.normcase(_plain(os.path.abspath(os.fsdecode(prefix))))
    if place == os.path.dirname(place):
        raise SpecError(f"prefix {os.fspath(prefix)!r}: the root cannot be hidden; name a folder.")
    home, real = (os.path.normcase(os.path.realpath(path)) for path in (store.target, place))
    if f"{home}{os.sep}".startswith(f"{real}{os.sep}"):
        raise SpecError(
            f"prefix {os.fspath(prefix)!r} would hide the store's own folder {home}; name another place, such as "
            f"{os.path.join(os.path.dirname(home), 'data')}."
        )
    # Only from within a real folder can a path lead into it without saying its name.
    sure = os.name == "posix" and not os.path.isdir(place)
    hint = os.path.basename(place) if sure else ""
    return Mount(tuple(dict.fromkeys((place, real))), hint, PosixView(store))


def _plain(path: str) -> str:
    """Return an absolute path with one leading slash."""
    return path[1:] if path.startswith("//") and os.name == "posix" else path


def _set(mounts: tuple[Mount, ...]) -> None:
    global _mounts
    before, _mounts = _mounts, mounts
    if mounts and not before:
        _routed.update(_table())
        swap(_routed)
    elif before and not mounts:
        swap({new: old for old, new in _routed.items()})
        _routed.clear()


def find(path: Any) -> tuple[PosixView, str] | None:
    """Return the store that a path leads to and the name in it, or None.

    Raises PermissionError where `..` leads out of a store, NotADirectoryError for a file with a slash behind it.
    """
    if not isinstance(path, str):
        if isinstance(path, int) or path is None:
            return None
        try:
            path = os.fsdecode(path)
        except (TypeError, UnicodeError):
            return None  # for the real function to judge
    for mount in _mounts:
        if mount.hint in path:
            try:
                full = _plain(os.path.abspath(path))
            except (OSError, ValueError):
                return None
            place = os.path.normcase(full)
            for prefix in mount.places:
                if place == prefix:
                    return mount.view, ""
                if place.startswith(prefix + os.sep):
                    name = full[len(prefix) + 1 :].replace(os.sep, "/")
                    if path.endswith("/") and mount.view.is_file(name):
                        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
                    return mount.view, name
            if ".." in path and _passes(path, mount):
                raise PermissionError(errno.EACCES, "'..' leads out of the mounted store", path)
    return None


def _passes(path: str, mount: Mount) -> bool:
    """Return whether a path that ends outside goes through the mount."""
    place = os.getcwd() if not os.path.isabs(path) else os.path.splitdrive(path)[0] + os.sep
    for part in os.path.splitdrive(path)[1].replace("/", os.sep).split(os.sep):
        place = os.path.normpath(os.path.join(place, part))
        if os.path.normcase(_plain(place)) in mount.places and part != os.pardir:
            return True
    return False


def _table() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the replacement of each of Python's functions."""
    table = {builtins.open: _route(builtins.open, calls.open_, "file")}
    for name, ours in calls.ROUTED.items():
        if hasattr(os, name):
            table[getattr(os, name)] = _route(getattr(os, name), ours)
    for name in calls.REFUSED:
        if hasattr(os, name):
            table[getattr(os, name)] = _refuse(getattr(os, name))
    for name, ours in calls.ANSWERED.items():
        asked = getattr(os.path, name, None)
        if asked is not None and not isinstance(asked, FunctionType):  # else it calls os.stat
            table[asked] = _route(asked, ours)
    return table


def _route(
    original: Callable[..., Any], ours: Callable[..., Any], keyword: str = "path"
) -> Callable[..., Any]:
    @functools.wraps(original)
    def routed(*arguments: Any, **options: Any) -> Any:
        path = arguments[0] if arguments else options.get(keyword)
        found = None if options.get("dir_fd") is not None else find(path)
        if found is None:
            return original(*arguments, **options)
        options.pop(keyword, None)
        return ours(*found, path, *arguments[1:], **options)

    return routed


def _refuse(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def refused(*arguments: Any, **options: Any) -> Any:
        for path in (*arguments[:2], *options.values()):
            found = find(path) if isinstance(path, str | bytes | os.PathLike) else None
            if found is not None:
                view, name = found
                if original.__name__ not in calls.MAKING:
                    view.check(name, path)
                why = f"a packed store has no os.{original.__name__}; its files are read, and written once with open"
                raise OSError(errno.EROFS, why, path)
        return original(*arguments, **options)

    return refused
