"""A packed store as an fsspec file system, `dlhpc://`, like `s3://` or `zip://`.

    fs = PackedFileSystem("data.store")                         # or an open PackedStore
    fs.ls("train"), fs.cat(["train/a.png", "train/b.png"])      # one round trip an owner
    fsspec.open("dlhpc://train/a.png", fo="data.store")
    fsspec.open("dlhpc://train/a.png::file:///scratch/data.store")

Files are write-once (wb, xb) and visible to all ranks after close. Only this module imports fsspec.
"""

import errno
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import IO, Any

from fsspec import register_implementation
from fsspec.spec import AbstractFileSystem

from lib_dlhpc.errors import SpecError
from lib_dlhpc.storage.packed import PackedStore, open_store
from lib_dlhpc.storage.posix import PosixView


class PackedFileSystem(AbstractFileSystem):
    """The files of a packed store; paths are its names, with or without a slash before them.

    `fo` is the store's folder (then it is opened here, and close() closes it) or an open PackedStore.
    Raises StoreError for a folder that is no store, and the OSErrors that a folder would raise.
    """

    protocol = "dlhpc"
    root_marker = ""
    cachable = False  # a store may be closed or repacked; a cached instance would be stale

    def __init__(
        self,
        fo: str | os.PathLike[str] | PackedStore | None = None,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if fo is None:
            raise SpecError(
                "dlhpc:// needs the folder of a packed store, fo: such as fsspec.open('dlhpc://a.txt', fo='data.store')"
                " or 'dlhpc://a.txt::file:///scratch/data.store'."
            )
        super().__init__(fo, **options)
        if target_protocol not in (None, "file", "local"):
            raise SpecError(
                f"dlhpc over {target_protocol}: a packed store is read from a folder; legal: file."
            )
        self._own = not isinstance(fo, PackedStore)
        self.store: PackedStore = fo if isinstance(fo, PackedStore) else open_store(fo)
        self.view = PosixView(self.store)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return super()._strip_protocol(path).lstrip("/")

    def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._own:
            self.store.close()

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return name, size (B), type ("file" or "directory") and mtime (s). Raises FileNotFoundError."""
        name = self._strip_protocol(path)
        found = self.view.status(name, name)
        kind = "directory" if self.view.is_dir(name) else "file"
        return {"name": name, "size": found.st_size, "type": kind, "mtime": found.st_mtime}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return the names in a folder, or the info of each; for a file, only that file."""
        name = self._strip_protocol(path)
        above = f"{name}/" if name else ""
        inside = [] if self.view.is_file(name) else self.view.listing(name, name)
        names = [name] if self.view.is_file(name) else [above + one for one in inside]
        return [self.info(name) for name in names] if detail else names

    def modified(self, path: str) -> datetime:
        """Return the file's modification time before it was packed."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def _open(self, path: str, mode: str = "rb", autocommit: bool = True, **_: Any) -> IO[bytes]:
        if not autocommit:
            why = "a packed store has no transactions: a file is there at its close"
            raise OSError(errno.ENOTSUP, why, path)
        return self.view.open(path, path, mode)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """Return a file's bytes from `start` to `end`."""
        name = self._strip_protocol(path)
        return self.view.reader(name, name).getvalue()[start:end]

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any
    ) -> Any:
        """Return the bytes of a file, or of many by name; many files of one rank are one round trip."""
        names = self.expand_path(path, recursive=recursive)
        names = [name for name in names if not self.view.is_dir(name)]
        one = isinstance(path, str) and names == [self._strip_protocol(path)]
        if one or on_error != "raise":
            return super().cat(path, recursive=recursive, on_error=on_error, **options)
        return dict(zip(names, self._read(names), strict=True))

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        """Return bytes from `starts` to `ends` of each path; every file is read once."""
        if on_error != "raise" and not all(map(self.isfile, paths)):
            return list(super().cat_ranges(paths, starts, ends, max_gap, on_error, **options))
        starts, ends = (
            bound if isinstance(bound, list) else [bound] * len(paths) for bound in (starts, ends)
        )
        names = [self._strip_protocol(path) for path in paths]
        whole = dict(zip(dict.fromkeys(names), self._read(list(dict.fromkeys(names))), strict=True))
        return [
            whole[name][start:end] for name, start, end in zip(names, starts, ends, strict=True)
        ]

    def _read(self, names: Sequence[str]) -> list[bytes]:
        try:
            return self.store.read_many(names)
        except SpecError as error:
            for name in names:
                self.view.check_file(name, name)
            raise OSError(errno.EIO, str(error)) from error  # its words name the file

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a folder, and those above it; see PosixView.make_dir."""
        name = self._strip_protocol(path)
        above = self._parent(name)
        if create_parents and above and not self.isdir(above):
            self.mkdir(above)
        self.view.make_dir(name, path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder, and those above it."""
        if not (exist_ok and self.isdir(path)):
            self.mkdir(path)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Write a copy of a file, or make a folder like the first."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
        else:
            self.pipe_file(path2, self.cat_file(path1))

    def mv(self, path1: str, path2: str, *_: Any, **__: Any) -> None:
        """Raise OSError: nothing in a packed store moves."""
        self.info(path1)
        raise OSError(
            errno.EROFS, "a file of a packed store stays where it is; cp writes a copy", path1
        )

    def _rm(self, path: str) -> None:
        raise OSError(errno.EROFS, "a file of a packed store stays", path)


register_implementation(PackedFileSystem.protocol, PackedFileSystem, clobber=True)
