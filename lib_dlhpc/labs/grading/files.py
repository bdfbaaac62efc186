"""The files of a learner's process: it has none, and asks for each call, which is carried out here.

Files        of one process: the folders that its function was given, and nothing else, with limits of size and number
Folder       a folder to give, with a function that learns of each call that changes it, before it is carried out
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.storage import open_store, pack
from lib_dlhpc.storage.index import Manifest
from lib_dlhpc.storage.snapshots import SnapshotStore

MOST = 1 << 26  # B that a process may write
LARGEST = 1 << 24  # B of a file
NUMBER = 5_000  # files and folders that it may make
OPEN = 64  # that it may hold open
MODES = ("r", "r+", "w", "w+", "x", "x+", "a", "a+", "c+")  # c+: made if it is not there
CALLS = frozenset(
    {
        *("open", "read", "write", "seek", "truncate", "sync", "close"),
        *("stat", "exists", "listdir", "scandir", "mkdir", "rmdir", "unlink", "rename"),
        *("pack", "store", "store_read", "store_read_many", "store_start", "store_finish"),
        *("store_close", "snapshots"),
    }
)
VERSIONS = frozenset({"save", "save_async", "newest", "load", "log", "version", "verify", "close"})


class Killed(LabError):
    """The process was to be killed before a call."""


class Folder(NamedTuple):
    """A folder that a process is given. changes: called with the name of a call that changes it, before that."""

    path: Path
    changes: Callable[[str], None] = lambda name: None


class Files:
    """What a process may do with files. Symbolic links cannot be made, so that a path is where it seems to be."""

    def __init__(self) -> None:
        self._folders: dict[str, Folder] = {}
        self._open: dict[int, Any] = {}
        self._next, self._written, self._made = 1, 0, 0

    def grant(self, folder: Folder) -> str:
        """Give a folder, or a file, to the process; return its path."""
        path = os.path.abspath(folder.path)
        self._folders[path] = folder
        return path

    def release(self) -> None:
        """Close all that the process has left open."""
        for each in self._open.values():
            if hasattr(each, "close"):
                each.close()
        self._open.clear()

    # Files: numbers stand for what is open.

    def open(self, path: Any, mode: Any) -> int:
        """Open a file; return its number."""
        if mode not in MODES or len(self._open) >= OPEN:
            raise OSError(errno.EMFILE, f"{OPEN} files are open, or an unknown mode: {mode}")
        path = self._own(path) if mode == "r" else self._changed("open", path)
        if mode != "r":
            self._count()
        if mode == "c+":
            mode = "r+" if os.path.exists(path) else "x+"
        try:  # no other call before it: calls are counted (repair_the_input/file_calls.py)
            return self._held(open(path, f"{mode[0]}b{mode[1:]}", buffering=0))
        except IsADirectoryError:
            if mode != "r":
                raise
            return self._held(path)  # a folder, to be flushed

    def read(self, number: Any, size: Any) -> bytes:
        """Read up to `size` bytes; to the end below zero."""
        file = self._file(number)
        return bytes(file.readall() if size < 0 else file.read(min(size, LARGEST)))

    def write(self, number: Any, data: Any) -> int:
        """Write."""
        file = self._file(number)
        self._changed("write", file.name)
        if not isinstance(data, bytes) or file.tell() + len(data) > LARGEST:
            raise OSError(errno.EFBIG, f"a file has at most {LARGEST} bytes")
        self._write(len(data))
        return int(file.write(data))

    def seek(self, number: Any, offset: Any, whence: Any) -> int:
        """Move in a file."""
        return int(self._file(number).seek(offset, whence))

    def truncate(self, number: Any, size: Any) -> int:
        """Cut or extend a file."""
        file = self._file(number)
        self._changed("truncate", file.name)
        if size > LARGEST:
            raise OSError(errno.EFBIG, f"a file has at most {LARGEST} bytes")
        self._write(max(0, size - os.fstat(file.fileno()).st_size))
        return int(file.truncate(size))

    def sync(self, number: Any) -> None:
        """Count a flush to the disk: no power fails here, so nothing is flushed."""
        if number not in self._open:
            raise OSError(errno.EBADF, f"{number} is not an open file")

    def close(self, number: Any) -> None:
        """Close a file."""
        found = self._open.pop(number, None)
        if hasattr(found, "close"):
            found.close()

    def stat(self, what: Any) -> list[Any]:
        """Return the status of a path or an open file."""
        if isinstance(what, int):
            return list[Any](os.fstat(self._file(what).fileno()))
        return list[Any](os.stat(what if self._above(what) else self._own(what)))

    def exists(self, path: Any) -> bool:
        """Return whether something is there."""
        return self._above(path) or os.access(self._own(path), os.F_OK)

    def listdir(self, path: Any) -> list[str]:
        """Return the names in a folder."""
        return os.listdir(self._own(path))

    def scandir(self, path: Any) -> list[list[Any]]:
        """Return [name, whether it is a folder] of what is in a folder."""
        with os.scandir(self._own(path)) as entries:
            return [[each.name, each.is_dir()] for each in entries]

    def mkdir(self, path: Any) -> None:
        """Make a folder."""
        path = self._changed("mkdir", path)
        self._count()
        os.mkdir(path)

    def rmdir(self, path: Any) -> None:
        """Remove an empty folder."""
        os.rmdir(self._changed("rmdir", path))

    def unlink(self, path: Any) -> None:
        """Remove a file."""
        os.unlink(self._changed("unlink", path))

    def rename(self, old: Any, new: Any) -> None:
        """Rename, over what is there."""
        old, new = self._own(old), self._changed("rename", new)
        os.replace(old, new)

    # The storage library.

    def pack(self, tree: Any, target: Any) -> None:
        """Pack a folder."""
        self._count()
        self._write(0)  # also where an earlier one was refused
        self._write(_packed(pack(self._own(tree), self._changed("pack", target))))

    def store(self, target: Any) -> list[Any]:
        """Open what was packed; return its number and the names of its files."""
        self._write(0)
        store = open_store(self._own(target), mapped=False)  # others may cut its files short
        self._write(_packed(store.manifest))  # it is in memory
        return [self._held(store), list(store.names)]

    def store_read(self, number: Any, name: Any) -> bytes:
        """Return a file of a store."""
        return bytes(self._store(number, [name]).read(name))

    def store_read_many(self, number: Any, names: Any) -> list[bytes]:
        """Return files of a store."""
        return [bytes(each) for each in self._store(number, names).read_many(names)]

    def store_start(self, number: Any, names: Any) -> int:
        """Request files of a store; return the number of the request."""
        request = self._store(number, names).read_ahead([names], ahead=0)
        return self._held([bytes(each) for each in next(request)])

    def store_finish(self, number: Any) -> Sequence[bytes]:
        """Return what was requested."""
        found = self._open.pop(number, None)
        if not isinstance(found, list):
            raise OSError(errno.EBADF, f"{number} is not a request")
        return found

    def _store(self, number: Any, names: Any) -> Any:
        """Return a store of which that much may be requested at once."""
        store = self._file(number)
        if sum(store.stat(name).size for name in names) > LARGEST:
            raise OSError(errno.EFBIG, f"at most {LARGEST} bytes may be requested at once")
        return store

    def store_close(self, number: Any) -> None:
        """Close a store."""
        self.close(number)

    def snapshots(self, folder: Any) -> "Snapshots":
        """Return a store of versions."""
        path = self._own(folder)
        return Snapshots(SnapshotStore(path), lambda name, size: self._saving(name, path, size))

    def _saving(self, name: str, path: str, size: int) -> None:
        self._changed(name, path)
        self._write(size)
        self._count()

    def _own(self, path: Any) -> str:
        """Return a path that is in a folder of this process."""
        full = os.path.abspath(path) if isinstance(path, str) else str(path)
        if not any(full == own or full.startswith(own + os.sep) for own in self._folders):
            raise PermissionError(errno.EACCES, f"outside of the given folder: {full}")
        return full

    def _above(self, path: Any) -> bool:
        """Return whether a path leads to a folder of this process: os.makedirs asks."""
        return any(own.startswith(f"{str(path).rstrip(os.sep)}{os.sep}") for own in self._folders)

    def _changed(self, name: str, path: Any) -> str:
        full = self._own(path)
        for own, folder in self._folders.items():
            if full == own or full.startswith(own + os.sep):
                folder.changes(name)
        return full

    def _count(self) -> None:
        self._made += 1
        if self._made > NUMBER:
            raise OSError(errno.ENOSPC, f"at most {NUMBER} files and folders may be created")

    def _write(self, size: int) -> None:
        self._written += size
        if self._written > MOST:
            raise OSError(errno.ENOSPC, f"at most {MOST} bytes may be written")

    def _held(self, what: Any) -> int:
        if len(self._open) >= OPEN:
            raise OSError(errno.EMFILE, f"at most {OPEN} files may be open")
        number, self._next = self._next, self._next + 1
        self._open[number] = what
        return number

    def _file(self, number: Any) -> Any:
        found = self._open.get(number)
        if found is None or isinstance(found, str | list):
            raise OSError(errno.EBADF, f"{number} is not an open file")
        return found


def _packed(manifest: Manifest) -> int:
    """Return the bytes of the partitions of a store."""
    return sum(part.size for part in manifest.partitions)


class Snapshots:
    """A SnapshotStore whose save is one call: a kill comes before it or after it."""

    def __init__(self, store: SnapshotStore, saving: Callable[[str, int], None]) -> None:
        self._store, self._saving = store, saving

    def save(self, arrays: Any, **named: Any) -> Any:
        """Publish a version."""
        self._saving("SnapshotStore.save", sum(each.nbytes for each in arrays.values()))
        return self._store.save(arrays, **named)

    def save_async(self, arrays: Any, **named: Any) -> "Pending":
        """Return what publishes a version once it is waited for: a kill before that takes it away."""
        return Pending(lambda: self.save(arrays, **named))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Pending:
    """A version that is still to be written."""

    def __init__(self, publish: Callable[[], Any]) -> None:
        self._publish = publish

    def wait(self) -> Any:
        """Write it, and return it."""
        return self._publish()
