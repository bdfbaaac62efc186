"""Objects: files of chunks. A version's new chunks are one object, so a version costs one flush, not hundreds.

    MAGIC | chunk | chunk | ... | table: (hash, length) of each chunk | length of the table, 8 bytes

An object's name is the hash of its table, and the table has the hash of each chunk: every changed byte is
detected.
"""

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from lib_dlhpc.storage.snapshots.chunks import HASH, Bytes, hashed
from lib_dlhpc.storage.snapshots.files import names, written_whole

MAGIC = b"dlhpc snapshot object 1\n"
ROW, LENGTH = struct.Struct(f"<{HASH}sQ"), struct.Struct("<Q")


class Spot(NamedTuple):
    """Where a chunk lies."""

    object: str
    offset: int
    length: int


class Damaged(Exception):
    """A damaged object: `str` names the object and the damage."""


class Objects:
    """The objects of a folder, and where each chunk is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where: dict[bytes, Spot] = {}
        self.damaged: dict[str, str] = {}  # name: what is wrong with it
        self.tables: dict[str, list[tuple[bytes, Spot]]] = {}

    def refresh(self) -> None:
        """Reread the folder: other processes may have written and removed objects."""
        there = names(self.folder)
        if set(there) == self.tables.keys() | self.damaged.keys():
            return
        for gone in self.tables.keys() - set(there):
            del self.tables[gone]
        self.damaged = {}
        for name in there:
            if name not in self.tables:
                try:
                    self.tables[name] = table_of(self.folder / name)
                except (OSError, Damaged) as error:
                    self.damaged[name] = str(error)
        self.where = {key: spot for table in self.tables.values() for key, spot in table}

    def add(
        self, chunks: Iterable[tuple[bytes, Bytes]], again: bool = False, last: bool = True
    ) -> int:
        """Write missing chunks, or all, into one new object; return their bytes.

        A failed write leaves nothing. last: see written_whole.
        """
        rows: list[tuple[bytes, int]] = []
        new: set[bytes] = set()
        name = ""
        with ExitStack() as stack:
            file: IO[bytes] | None = None
            for key, data in chunks:
                if key in new or (key in self.where and not again):
                    continue
                if file is None:
                    path = written_whole(self.folder / "new", lambda: self.folder / name, last=last)
                    file = stack.enter_context(path)
                    file.write(MAGIC)
                file.write(data)
                new.add(key)
                rows.append((key, len(data)))
            if file is not None:
                table = b"".join([ROW.pack(*row) for row in rows])
                name = hashed(table).hex()
                file.write(table + LENGTH.pack(len(table)))
        if rows:
            self.tables[name] = list(_spots(name, rows))
            self.damaged.pop(name, None)
            self.where.update(self.tables[name])
        return sum(length for _, length in rows)

    def copy(self, keys: Iterable[bytes]) -> None:
        """Write existing chunks into one new object. Raises Damaged."""
        with self.reading() as read:
            self.add(((key, read(key)) for key in keys), again=True)

    def sizes(self, of: Callable[[bytes], bool]) -> dict[str, int]:
        """Return the bytes of the chunks of each object that are wanted, and not found in another one."""
        return {
            name: sum(spot.length for key, spot in table if of(key) and self.where[key] == spot)
            for name, table in self.tables.items()
        }

    @contextmanager
    def reading(self) -> Iterator[Callable[[bytes], bytes]]:
        """Give a function that reads a chunk by its hash, verified. It raises Damaged."""
        with ExitStack() as stack:
            files: dict[str, IO[bytes]] = {}

            def read(key: bytes) -> bytes:
                if key not in self.where:
                    raise Damaged(f"chunk {key.hex()}: in no object that can be read{self._ills()}")
                spot = self.where[key]
                try:
                    if spot.object not in files:
                        path = self.folder / spot.object
                        files[spot.object] = stack.enter_context(open(path, "rb"))
                    files[spot.object].seek(spot.offset)
                    data = files[spot.object].read(spot.length)
                except OSError as error:
                    raise Damaged(f"object {spot.object}: {error.strerror}") from None
                if len(data) != spot.length or hashed(data) != key:
                    raise Damaged(
                        f"object {spot.object}: the {spot.length} B from byte {spot.offset} on are not"
                        " what was written"
                    )
                return data

            yield read

    def _ills(self) -> str:
        return "".join(f"; {text}" for text in self.damaged.values())


def table_of(path: Path) -> list[tuple[bytes, Spot]]:
    """Return the hash and the place of each chunk of an object. Raises Damaged, OSError."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LENGTH.size))
        tail = file.read()
        length = LENGTH.unpack(tail)[0] if len(tail) == LENGTH.size else size
        start = size - LENGTH.size - length
        if start >= len(MAGIC) and length % ROW.size == 0:
            file.seek(start)
            table = file.read(length)
            file.seek(0)
            whole = hashed(table).hex() == path.name and file.read(len(MAGIC)) == MAGIC
            rows = [(key, count) for key, count in ROW.iter_unpack(table)] if whole else []
            if whole and len(MAGIC) + sum(count for _, count in rows) == start:
                return list(_spots(path.name, rows))
    raise Damaged(f"object {path.name}: cut short or changed ({size} B)")


def _spots(name: str, rows: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, Spot]]:
    offset = len(MAGIC)
    for key, length in rows:
        yield key, Spot(name, offset, length)
        offset += length
