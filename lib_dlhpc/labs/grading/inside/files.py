"""Stand-ins for Python's file functions and for the storage library: the checker carries out each call.

A process has no files of its own. What it opens is a number in the checker's process, which lets it have the
folders that its function is given, and nothing else. Buffers are here, so a kill loses what is not flushed.
"""

import _pyio  # type: ignore[import-not-found]
import errno
import io
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

FIRST = 1000  # of the descriptors that stand for the checker's files
PIECE = 1 << 20  # B that are written at once
Do = Callable[..., Any]


class File(io.RawIOBase):
    """A file that the checker holds open."""

    def __init__(self, do: Do, number: int, name: Any, mode: str) -> None:
        self._do, self._number, self.name, self.mode = do, number, name, mode

    def readable(self) -> bool:
        """Return whether it was opened for reading."""
        return "r" in self.mode or "+" in self.mode

    def writable(self) -> bool:
        """Return whether it was opened for writing."""
        return self.mode[0] in "wax" or "+" in self.mode

    def seekable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return a number that os.fsync and others take here."""
        return FIRST + self._number

    def readinto(self, buffer: Any, /) -> int:
        """Read at most as many bytes as the buffer has."""
        data = self._do("read", self._number, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        """Read to the end."""
        return bytes(self._do("read", self._number, -1))

    def write(self, data: Any, /) -> int:
        """Write, a piece at most; return how many bytes."""
        return int(self._do("write", self._number, bytes(data[:PIECE])))

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move; return the position."""
        return int(self._do("seek", self._number, offset, whence))

    def truncate(self, size: int | None = None, /) -> int:
        """Cut or extend to a size, by default that of the position."""
        return int(self._do("truncate", self._number, self.tell() if size is None else size))

    def close(self) -> None:
        """Close it, once."""
        if not self.closed:
            super().close()
            self._do("close", self._number)


class Entry:
    """What os.scandir yields."""

    def __init__(self, folder: str, name: str, is_dir: bool) -> None:
        self.name, self.path, self._is_dir = name, os.path.join(folder, name), is_dir

    def __fspath__(self) -> str:
        return self.path

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a folder."""
        return self._is_dir

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a file."""
        return not self._is_dir

    def is_symlink(self) -> bool:
        """Return False: there are none."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return its status."""
        return os.stat(self.path)


class Entries:
    """The iterator of os.scandir, which is a context manager too."""

    def __init__(self, found: list[Entry]) -> None:
        self._found = iter(found)

    def __iter__(self) -> Iterator[Entry]:
        return self._found

    def __next__(self) -> Entry:
        return next(self._found)

    def __enter__(self) -> "Entries":
        return self

    def __exit__(self, *given: Any) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""


class PackedStore:
    """A packed store that the checker holds open. names: of all files."""

    def __init__(self, do: Do, number: int, names: list[str]) -> None:
        self._do, self._number, self.names = do, number, tuple(names)

    def __enter__(self) -> "PackedStore":
        return self

    def __exit__(self, *given: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._do("store_close", self._number)

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return bytes(self._do("store_read", self._number, name))

    def read_many(self, names: Iterable[str]) -> list[bytes]:
        """Return the bytes of files, with one request."""
        return list(self._do("store_read_many", self._number, list(names)))

    def read_ahead(self, batches: Iterable[Iterable[str]], ahead: int = 1) -> Iterator[list[bytes]]:
        """Yield the bytes of each batch of names, the next ones requested."""
        waiting: deque[int] = deque()
        for names in batches:
            waiting.append(self._do("store_start", self._number, list(names)))
            if len(waiting) > ahead:
                yield self._do("store_finish", waiting.popleft())
        while waiting:
            yield self._do("store_finish", waiting.popleft())


def library(do: Do) -> dict[str, dict[str, Any]]:
    """Return what the modules of the storage library hold here."""

    def pack(tree: Any, target: Any) -> None:
        """Pack the files of a folder."""
        do("pack", os.fspath(tree), os.fspath(target))

    def open_store(target: Any, comm: Any = None) -> PackedStore:
        """Open what was packed."""
        return PackedStore(do, *do("store", os.fspath(target)))

    def snapshots(folder: Any) -> Any:
        """Return a store of versions."""
        return do("snapshots", os.fspath(folder))

    return {
        "lib_dlhpc.storage": {"pack": pack, "open_store": open_store, "PackedStore": PackedStore},
        "lib_dlhpc.storage.snapshots": {"SnapshotStore": snapshots, "open_snapshots": snapshots},
    }


def stand_ins(do: Do) -> dict[Any, Any]:
    """Return a stand-in for each of Python's functions on files."""
    opened: dict[int, File] = {}
    table = {io.open: _opener(do, opened), **_by_path(do), **_by_descriptor(do, opened)}
    for name in ("_USE_CP_SENDFILE", "_USE_CP_COPY_FILE_RANGE", "_use_fd_functions"):
        if hasattr(shutil, name):
            setattr(shutil, name, False)  # shortcuts that take the system's own descriptors
    return table


def _text(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))


def _opener(do: Do, opened: dict[int, File]) -> Callable[..., Any]:
    def open_(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if isinstance(file, int):
            raw = opened.get(file) or _none(file)
        else:
            letters = mode.replace("t", "").replace("b", "")
            raw = File(do, do("open", _text(file), letters), file, letters)
        if buffering == 0 and "b" in mode:
            return raw
        # _pyio's, for numpy writes around io's own to the system's descriptor.
        kind: Any = _pyio.BufferedWriter if raw.writable() else _pyio.BufferedReader
        kind = _pyio.BufferedRandom if "+" in raw.mode else kind
        buffered = kind(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
        if "b" in mode:
            return buffered
        return io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline)

    return open_


def _by_path(do: Do) -> dict[Any, Any]:
    def stat(path: Any, *, dir_fd: Any = None, follow_symlinks: bool = True) -> os.stat_result:
        what = path - FIRST if isinstance(path, int) else _text(path)
        return os.stat_result(do("stat", what))

    def scandir(path: Any = ".") -> Entries:
        found = do("scandir", _text(path))
        return Entries([Entry(os.fspath(path), *each) for each in found])

    def move(old: Any, new: Any, **options: Any) -> None:
        do("rename", _text(old), _text(new))

    def one(name: str) -> Callable[..., Any]:
        return lambda path=".", *given, **options: do(name, _text(path))

    def nothing(*given: Any, **options: Any) -> list[str]:
        return []  # times, modes and attributes are not held

    table = {os.stat: stat, os.lstat: stat, os.fstat: stat, os.scandir: scandir}
    table |= {os.rename: move, os.replace: move, os.listdir: one("listdir")}
    table |= {os.mkdir: one("mkdir"), os.rmdir: one("rmdir"), os.access: one("exists")}
    table |= {os.unlink: one("unlink"), os.remove: one("unlink")}
    names = ("utime", "chmod", "chown", "listxattr", "getxattr", "setxattr")
    return table | {getattr(os, name): nothing for name in names if hasattr(os, name)}


def _by_descriptor(do: Do, opened: dict[int, File]) -> dict[Any, Any]:
    def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        letters = _letters(flags)
        file = File(do, do("open", _text(path), letters), path, letters)
        opened[file.fileno()] = file
        return file.fileno()

    def close(number: int) -> None:
        (opened.pop(number, None) or _none(number)).close()

    def sync(file: Any) -> None:
        do("sync", (file if isinstance(file, int) else file.fileno()) - FIRST)

    def write(number: int, data: Any) -> int:
        return (opened.get(number) or _none(number)).write(data)

    def read(number: int, size: int) -> bytes:
        return bytes(do("read", number - FIRST, size))

    def seek(number: int, offset: int, whence: int) -> int:
        return int(do("seek", number - FIRST, offset, whence))

    def truncate(file: Any, size: int) -> None:
        if not isinstance(file, int):
            with open(file, "r+b") as raw:
                raw.truncate(size)
        else:
            do("truncate", file - FIRST, size)

    table = {os.open: open_, os.close: close, os.fsync: sync, os.write: write, os.read: read}
    table |= {os.lseek: seek, os.truncate: truncate, os.ftruncate: truncate}
    return table | ({os.fdatasync: sync} if hasattr(os, "fdatasync") else {})


def _letters(flags: int) -> str:
    """Return the mode of open that does what flags of os.open ask for."""
    if flags & os.O_CREAT and flags & os.O_EXCL:
        return "x+"
    if flags & os.O_TRUNC:
        return "w+"
    if flags & os.O_APPEND:
        return "a+"
    if flags & os.O_CREAT:
        return "c+"
    return "r+" if flags & (os.O_RDWR | os.O_WRONLY) else "r"


def _none(number: int) -> Any:
    raise OSError(errno.EBADF, f"{number} is no file that is open here")


def training_of(session: Any, number: int, state: list[Any]) -> "Training":
    """Return the training that the checker has, as it is now."""
    training = Training(session, number)
    training.take(state)
    return training


class Training:
    """The state of training: weights, velocity, rng, step. A step is taken by the checker."""

    def __init__(self, session: Any, number: int) -> None:
        self._session, self._number = session, number
        self.rng = np.random.default_rng(0)

    def one_step(self) -> None:
        """Take a step."""
        self.take(self._session.do(self._number, "stepped", [self.state()], {}))

    def state(self) -> list[Any]:
        """Return all of it as plain data."""
        return [self.weights, self.velocity, self.rng.bit_generator.state, self.step]

    def take(self, state: list[Any]) -> None:
        """Be in a state."""
        self.weights, self.velocity, order, self.step = state
        self.rng.bit_generator.state = order
