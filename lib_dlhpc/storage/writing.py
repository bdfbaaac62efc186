"""Output files of a store: write-once, visible to all ranks when they are closed, saved when the store closes.

A name has a home rank that grants the right to write it, so one of two ranks that create the same file gets an error.
Until the store closes a file's bytes stay with its writer, which serves them like a packed file. Then each rank
writes its files into the folder `written` of the store, and rank 0 lists them in `written.json`: only files listed
there belong to the store. They are never packed.
"""

import json
import os
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from lib_dlhpc.storage.checksum import checksum
from lib_dlhpc.storage.errors import AlreadyThere, StoreError
from lib_dlhpc.storage.in_memory import InMemory
from lib_dlhpc.storage.names import checked, to_bytes
from lib_dlhpc.storage.remote import Peers, pieces

FOLDER, LIST = "written", "written.json"
CLAIM, RELEASE, ANNOUNCE, FETCH = 3, 4, 5, 6  # questions
_YES, _NO = b"\1", b"\0"
ON_DISK = -1


class Output(NamedTuple):
    """A written file: B, checksum, ns since 1970, the rank that has it (ON_DISK: the store's folder)."""

    size: int
    checksum: int
    mtime: int
    rank: int


class OutputFile(InMemory):
    """A file open for writing: published to all ranks by close, discarded if its `with` block raises."""

    def __init__(
        self, name: str, publish: Callable[[str, bytes], None], drop: Callable[[str], None]
    ):
        super().__init__()
        self.name, self._publish, self._drop = name, publish, drop

    def close(self) -> None:
        """Make the file visible. Raises StoreError."""
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._publish(self.name, data)

    def discard(self) -> None:
        """Forget the file; its name is free again."""
        if not self.closed:
            super().close()
            self._drop(self.name)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close() if kind is None else self.discard()


class Outputs:
    """This rank's view of the written files of a store."""

    def __init__(self, target: Path, files: dict[str, Output], rank: int = 0) -> None:
        self.files = files
        self.peers: Peers | None = None
        self._target, self._rank = target, rank
        self._mine: dict[str, bytes] = {}
        self._claimed = set(files)  # of the names that are at home here
        self._open: set[str] = set()
        self._closed, self._pid = False, os.getpid()
        self._lock = threading.Lock()

    def create(self, name: str) -> OutputFile:
        """Return a file to write. Raises AlreadyThere, StoreError."""
        self._check_process(name)
        if self._ask(self._home(name), CLAIM, {"name": checked(name)}) == _NO:
            raise AlreadyThere(f"{self._target} has {name!r} already; a file is written once.")
        with self._lock:
            self._open.add(name)
        return OutputFile(name, self._publish, self._drop)

    def finish(self) -> list[str]:
        """Refuse new files; return the names of those still open for writing."""
        with self._lock:
            self._closed = True
            return sorted(self._open)

    def read(self, name: str) -> bytes:
        """Return the content of a written file. Raises StoreError."""
        output = self.files[name]
        if output.rank == ON_DISK:
            data = _on_disk(self._target, name)
        elif output.rank == self._rank:
            data = self._mine[name]
        else:
            data = self._fetched(name, output)
        if len(data) != output.size or checksum(data) != output.checksum:
            raise StoreError(f"{name!r}, written into {self._target}, is damaged.")
        return data

    def answer(self, rank: int, kind: int, payload: memoryview) -> list[Any]:
        """Return the answer to another rank's question."""
        asked = json.loads(bytes(payload))
        name = asked["name"]
        if kind == FETCH:
            return pieces(memoryview(self._mine[name]))
        if kind == CLAIM:
            with self._lock:
                if name in self._claimed:
                    return [_NO]
                self._claimed.add(name)
        elif kind == RELEASE:
            with self._lock:
                self._claimed.discard(name)
        else:
            self.files[name] = Output(asked["size"], asked["checksum"], asked["mtime"], rank)
        return [_YES]

    def flush(self) -> list[str]:
        """Write this rank's files into the store's folder, to the disk itself, and return their names.

        Raises StoreError naming the file that cannot be; then none of this rank's files is left there.
        """
        placed: list[Path] = []
        for name, data in self._mine.items():
            try:
                placed.append(_place(self._target / FOLDER, name, data))
            except OSError as error:
                for path in placed:
                    path.unlink(missing_ok=True)
                raise StoreError(
                    f"{name!r} cannot be written into {self._target / FOLDER}: {error.strerror}."
                ) from None
        return list(self._mine)

    def save_list(self, names: list[str]) -> None:
        """List these files and those that were listed before. Raises StoreError."""
        kept = [name for name, output in self.files.items() if output.rank == ON_DISK]
        rows = {name: self.files[name]._replace(rank=ON_DISK)[:3] for name in (*kept, *names)}
        try:
            _replace(self._target / LIST, json.dumps(rows, indent=1).encode())
        except OSError as error:
            raise StoreError(f"{self._target / LIST}: {error.strerror}.") from None

    def _check_process(self, name: str) -> None:
        if os.getpid() != self._pid:  # what it writes would end with it
            raise StoreError(
                f"{name!r}, to be written into {self._target}: a forked process cannot write into a store;"
                " the process that opened it can."
            )

    def _publish(self, name: str, data: bytes) -> None:
        self._check_process(name)
        with self._lock:
            if self._closed:
                raise StoreError(
                    f"{name!r} is lost: it was still open when {self._target} was closed."
                    " Close a file before its store."
                )
            self._open.discard(name)
        output = Output(len(data), checksum(data), time.time_ns(), self._rank)
        self._mine[name] = data
        self.files[name] = output
        if self.peers:
            announced = {"name": name, **output._asdict()}
            others = [rank for rank in range(self.peers.size) if rank != self._rank]
            self.peers.wait([self._question(rank, ANNOUNCE, announced)[0] for rank in others])

    def _drop(self, name: str) -> None:
        if os.getpid() != self._pid:  # it stays its parent's
            return
        with self._lock:
            self._open.discard(name)
            if self._closed:
                return
        self._ask(self._home(name), RELEASE, {"name": name})

    def _home(self, name: str) -> int:
        return zlib.crc32(to_bytes(name)) % self.peers.size if self.peers else self._rank

    def _ask(self, rank: int, kind: int, what: dict[str, Any]) -> bytes:
        if rank == self._rank:
            return bytes(self.answer(rank, kind, memoryview(json.dumps(what).encode()))[0])
        assert self.peers
        ticket, answer = self._question(rank, kind, what)
        self.peers.wait([ticket])
        return bytes(answer)

    def _question(self, rank: int, kind: int, what: dict[str, Any]) -> tuple[Any, bytearray]:
        assert self.peers
        answer, about = bytearray(1), f"{what['name']!r}, to be written into {self._target}"
        return self.peers.ask(
            rank, kind, json.dumps(what).encode(), [answer], lambda: about
        ), answer

    def _fetched(self, name: str, output: Output) -> bytes:
        assert self.peers
        buffer = bytearray(output.size)
        parts = pieces(memoryview(buffer))
        payload, about = json.dumps({"name": name}).encode(), f"{name!r}, written there"
        self.peers.wait([self.peers.ask(output.rank, FETCH, payload, parts, lambda: about)])
        return bytes(buffer)


def load_list(target: Path) -> dict[str, Output]:
    """Return the files that were written into a store before it closed. Raises StoreError."""
    path = target / LIST
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {
            checked(name): Output(int(size), int(check), int(mtime), ON_DISK)
            for name, (size, check, mtime) in rows.items()
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}.") from None
    except StoreError:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is damaged: {error}.") from None


def _on_disk(target: Path, name: str) -> bytes:
    try:
        return (target / FOLDER / name).read_bytes()
    except OSError as error:
        raise StoreError(f"{name!r}, written into {target}: {error.strerror}.") from None


def _place(folder: Path, name: str, data: bytes) -> Path:
    """Write a file that is not there yet."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        raise FileExistsError(17, "a file of this name is already there")
    _replace(path, data)
    return path


def _replace(path: Path, data: bytes) -> None:
    """Write a file under another name, to the disk itself, and put it in its place."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
