"""PackedStore: the files of a packed tree, read by name from wherever their partitions are."""

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from lib_dlhpc.storage.checksum import ALIGN, WORD, checksum, checksums
from lib_dlhpc.storage.codecs import decompress
from lib_dlhpc.storage.errors import IsFolder, NoSuchFile, NotFolder, StoreError
from lib_dlhpc.storage.index import Index, Manifest, load, load_manifest
from lib_dlhpc.storage.names import checked
from lib_dlhpc.storage.partition import Partition, gather, open_partition

LARGE = 1 << 18  # B; a file from this size on is not copied through the room of a batch


@dataclass(frozen=True)
class Stat:
    """What a store knows of a name: B (a folder has 0), ns since 1970."""

    size: int
    is_dir: bool
    mtime_ns: int

    @property
    def mtime(self) -> float:
        """s since 1970, as os.stat has it."""
        return self.mtime_ns / 1e9


class PackedStore:
    """A packed tree, open for reading: a context manager; names are relative, their parts joined by `/`.

    Every read is verified: StoreError names the file and its partition where what came is not what was packed.
    """

    def __init__(
        self, target: Path, manifest: Manifest, index: Index, held: dict[int, Partition]
    ) -> None:
        self.target, self.manifest, self.index = target, manifest, index
        self._held = held
        self._room = np.zeros(0, WORD)

    @property
    def names(self) -> tuple[str, ...]:
        """All files, sorted by folder, then name."""
        return self.index.names

    def read(self, name: str) -> bytes:
        """Return a file's content. Raises NoSuchFile, IsFolder, StoreError."""
        number = self.index.numbers.get(name)
        if number is None:
            raise self._missing(name)
        return self._large(number)

    def read_many(self, names: Sequence[str]) -> list[bytes]:
        """Return the contents of files, in the order of their names. Raises NoSuchFile, IsFolder, StoreError."""
        numbers = self.index.numbers
        try:
            wanted = np.array([numbers[name] for name in names], np.int64)
        except KeyError as error:
            raise self._missing(error.args[0]) from None
        columns = self.index.columns
        stored = columns["stored"][wanted]
        small = np.flatnonzero((stored > 0) & (stored < LARGE))
        found: list[bytes] = [b""] * len(wanted)
        for place in np.flatnonzero(stored >= LARGE).tolist():
            found[place] = self._large(int(wanted[place]))
        if small.size:
            chosen = wanted[small]
            for place, data in zip(small.tolist(), self._batch(chosen, stored[small]), strict=True):
                found[place] = data
        return found

    def stat(self, name: str) -> Stat:
        """Return what is known of a file or folder ('' is the store itself). Raises NoSuchFile."""
        if name in self.index.folder_numbers:
            return Stat(0, True, int(self.index.folder_mtime[self.index.folder_numbers[name]]))
        number = self.index.numbers.get(name)
        if number is None:
            raise self._missing(name)
        columns = self.index.columns
        return Stat(int(columns["size"][number]), False, int(columns["mtime"][number]))

    def exists(self, name: str) -> bool:
        """Return whether there is a file or folder of this name."""
        return name in self.index.numbers or name in self.index.folder_numbers

    def listdir(self, folder: str = "") -> list[str]:
        """Return the last parts of the names in a folder, sorted. Raises NoSuchFile, NotFolder."""
        if folder in self.index.numbers:
            raise NotFolder(f"{folder!r} is a file of {self.target}.")
        held = self.index.children.get(folder)
        if held is None:
            raise self._missing(folder)
        return list(held)

    def walk(self, top: str = "") -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield (folder, folders in it, files in it), from `top` down, as os.walk does. Raises as listdir."""
        folders: list[str] = []
        files: list[str] = []
        for last in self.listdir(top):
            name = f"{top}/{last}" if top else last
            (folders if name in self.index.folder_numbers else files).append(last)
        yield top, folders, files
        for last in folders:
            yield from self.walk(f"{top}/{last}" if top else last)

    def open(self, name: str, mode: str = "rb") -> IO[Any]:
        """Return a file object: mode "rb" for bytes, "r" for UTF-8 text. Raises as read."""
        if mode not in ("rb", "r"):
            raise StoreError(f"mode: {mode!r} is not one of a store's files. Legal: 'rb', 'r'.")
        content = io.BytesIO(self.read(name))
        return content if mode == "rb" else io.TextIOWrapper(content, encoding="utf-8")

    def close(self) -> None:
        """Let go of the partitions; what was read stays."""
        self._held = {}

    def __enter__(self) -> "PackedStore":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _large(self, number: int) -> bytes:
        """Read one file without a room between."""
        entry = self.index.entry(number)
        content = self._held[entry.partition].content
        data = bytes(content[entry.offset : entry.offset + entry.stored])
        if checksum(data) != entry.checksum:
            raise self._damaged(number)
        return self._unpacked(number, data, entry.codec, entry.size)

    def _batch(self, numbers: np.ndarray, stored: np.ndarray) -> list[bytes]:
        """Read small files into one room, check them there all at once, and hand out copies."""
        columns = self.index.columns
        words = -(-stored // ALIGN)
        ends = np.cumsum(words)
        starts = ends - words
        if self._room.size < ends[-1]:
            self._room = np.zeros(int(ends[-1]), WORD)
        room = self._room.data.cast("B")
        at = (ALIGN * starts).tolist()
        gather(
            self._held, room,
            zip(columns["partition"][numbers].tolist(), columns["offset"][numbers].tolist(), at,
                (ALIGN * words).tolist(), strict=True),
        )  # fmt: skip
        found = checksums(self._room[: int(ends[-1])], starts, stored)
        wanted = columns["checksum"][numbers].tolist()
        if found != wanted:
            wrong = next(
                i for i, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1]
            )
            raise self._damaged(int(numbers[wrong]))
        data = [bytes(room[a : a + n]) for a, n in zip(at, stored.tolist(), strict=True)]
        codecs = columns["codec"][numbers]
        for place in np.flatnonzero(codecs).tolist():
            number = int(numbers[place])
            size = int(columns["size"][number])
            data[place] = self._unpacked(number, data[place], int(codecs[place]), size)
        return data

    def _unpacked(self, number: int, data: bytes, codec: int, size: int) -> bytes:
        try:
            return decompress(data, codec, size)
        except StoreError as error:
            raise StoreError(f"{self._where(number)}: {error}.") from None

    def _damaged(self, number: int) -> StoreError:
        return StoreError(
            f"{self._where(number)}: its checksum is not the one it was packed with; it is damaged. "
            "`dlhpc store verify` lists everything that is."
        )

    def _where(self, number: int) -> str:
        part = self.manifest.partitions[int(self.index.columns["partition"][number])].name
        return f"{self.index.names[number]!r} in {part} of {self.target}"

    def _missing(self, name: str) -> StoreError:
        if name in self.index.folder_numbers:
            return IsFolder(f"{name!r} is a folder of {self.target}.")
        if name:
            checked(name)
        return NoSuchFile(f"{self.target} has no {name!r}.")


def open_store(target: str | os.PathLike[str]) -> PackedStore:
    """Open a store for this process alone. Raises StoreError where it, its index or a partition is not as packed."""
    path = Path(target)
    manifest = load_manifest(path)
    index = load(path, manifest)
    held = {
        number: open_partition(path, number, file, index)
        for number, file in enumerate(manifest.partitions)
    }
    return PackedStore(path, manifest, index, held)
