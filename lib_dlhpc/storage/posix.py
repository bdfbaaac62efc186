"""POSIX semantics of a packed store: status, listings, files, and the expected errors.

Names are those of the store ("train/a.png", "" is its root). `path` is the caller's argument: errors have it as
their `filename`, with the `errno` of a real folder.
"""

import errno
import io
import os
import stat
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from typing import IO, Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.storage.errors import AlreadyThere
from lib_dlhpc.storage.in_memory import InMemory
from lib_dlhpc.storage.packed import PackedStore, Stat
from lib_dlhpc.storage.writing import OutputFile

DEVICE = 0xD17  # st_dev of every stored file: one file system of its own
OWNER = (os.getuid(), os.getgid()) if hasattr(os, "getuid") else (0, 0)
HAS_BLOCKS = hasattr(os.stat_result, "st_blocks")


@dataclass(frozen=True)
class PosixView:
    """A store as a file system; `made` are new folders, possibly empty."""

    store: PackedStore
    made: set[str] = field(default_factory=set)

    def find(self, name: str) -> Stat | None:
        """Return the status of a file or a folder, None if the name does not exist."""
        try:
            return self.store.stat(name)
        except SpecError:
            return Stat(0, True, 0) if name in self.made else None

    def is_dir(self, name: str) -> bool:
        """Return whether this folder exists."""
        found = self.find(name)
        return found is not None and found.is_dir

    def is_file(self, name: str) -> bool:
        """Return whether this file exists."""
        found = self.find(name)
        return found is not None and not found.is_dir

    def check(self, name: str, path: object) -> Stat:
        """Return the status of a name. Raises FileNotFoundError, NotADirectoryError."""
        found = self.find(name)
        if found is None:
            self._check_above(name, path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return found

    def _check_above(self, name: str, path: object) -> None:
        above = name.rpartition("/")[0]
        while above:
            if self.is_file(above):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            above = above.rpartition("/")[0]

    def status(self, name: str, path: object) -> os.stat_result:
        """Return what os.stat returns. Raises FileNotFoundError, NotADirectoryError."""
        found = self.check(name, path)
        mode = stat.S_IFDIR | 0o755 if found.is_dir else stat.S_IFREG | 0o444
        hashed = blake2b(name.encode(errors="surrogateescape"), digest_size=7).digest()
        second, exact = found.mtime_ns // 10**9, found.mtime_ns
        times = (second,) * 3 + (exact / 1e9,) * 3 + (exact,) * 3
        more = {"st_blocks": -(-found.size // 512)} if HAS_BLOCKS else {}
        numbers = (mode, int.from_bytes(hashed), DEVICE, 1, *OWNER, found.size, *times)
        return os.stat_result(numbers, more)

    def listing(self, name: str, path: object) -> list[str]:
        """Return the names in a folder, sorted. Raises FileNotFoundError, NotADirectoryError."""
        if not self.check(name, path).is_dir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        inside = self.store.listdir(name) if self.store.exists(name) or not name else []
        if not self.made:
            return inside
        above = f"{name}/" if name else ""
        made = {
            one[len(above) :].partition("/")[0] for one in tuple(self.made) if one.startswith(above)
        }
        return sorted({*inside, *made})

    def make_dir(self, name: str, path: object) -> None:
        """Make a folder, visible in this view only until it contains a file.

        Raises FileExistsError, and FileNotFoundError, NotADirectoryError where the folder above is none.
        """
        if self.is_dir(name) or self.is_file(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        above = name.rpartition("/")[0]
        if not self.check(above, path).is_dir:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        self.made.add(name)

    def open(
        self,
        name: str,
        path: object,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Return what the built-in open returns: the content to read, or a new file to write once.

        Raises the OSErrors of open, ValueError for a mode that is none, and OSError with EROFS for a mode that
        changes a file there is (a, r+), with EPERM for a second writing of a file, with EIO for damaged content.
        """
        check_mode(mode, encoding, errors, newline)
        if "a" in mode or {"r", "+"} <= set(mode):
            why = f"mode {mode!r} changes a stored file; a file of a packed store is written once"
            raise OSError(errno.EROFS, why, path)
        content: Any = (self.reader if "r" in mode else self.writer)(name, path, mode)
        if "b" in mode:
            return content
        text: Any = Text(content, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode
        return text

    def reader(self, name: str, path: object, mode: str = "r") -> "Content":
        """Return a file's content to read. Raises as os.stat, IsADirectoryError, and OSError (EIO) for damage."""
        try:
            return Content(self.store.read(name), path)
        except SpecError as error:  # check the path last
            self.check_file(name, path)
            raise OSError(errno.EIO, str(error), path) from error

    def writer(self, name: str, path: object, mode: str = "w") -> IO[bytes]:
        """Return a new file to write. Raises FileExistsError ("x"), PermissionError ("w") where it is there."""
        self._check_above(name, path)
        found = self.find(name)
        if found is not None and "x" in mode:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if found is not None:
            self.check_file(name, path)
            why = "a file of a packed store is written once, and this one has been"
            raise PermissionError(errno.EPERM, why, path)
        try:
            return self.store.create(name)
        except AlreadyThere:  # another rank created it first
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        except SpecError as error:
            raise OSError(errno.EIO, str(error), path) from error

    def check_file(self, name: str, path: object) -> None:
        """Raise what open raises for a name that is no file's."""
        if self.check(name, path).is_dir:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


class Content(InMemory):
    """A stored file's content, read-only, with the attributes that files have; without a copy."""

    mode = "rb"

    def __init__(self, data: bytes, name: object) -> None:
        super().__init__(data)
        self.name, self.size = name, len(data)

    def writable(self) -> bool:
        """Say no."""
        return False

    def write(self, *_: object) -> int:
        """Raise io.UnsupportedOperation."""
        raise io.UnsupportedOperation("not writable")

    writelines = truncate = write  # type: ignore[assignment]


class Text(io.TextIOWrapper):
    """Text of a stored file; a new file whose `with` fails is not published."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        content: Any = self.buffer
        if kind is not None and isinstance(content, OutputFile):
            self.detach()
            content.discard()
        else:
            self.close()


@cache
def check_mode(
    mode: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
) -> None:
    """Raise the ValueError that the built-in open raises for a mode, or for text options of a binary file."""
    if not isinstance(mode, str):
        raise TypeError(f"open() argument 'mode' must be str, not {type(mode).__name__}")
    if set(mode) - set("rwxabt+") or len(mode) != len(set(mode)):
        raise ValueError(f"invalid mode: {mode!r}")
    if "b" in mode and "t" in mode:
        raise ValueError("can't have text and binary mode at once")
    if len(set(mode) & set("rwxa")) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    if "b" in mode and (encoding, errors, newline) != (None, None, None):
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
