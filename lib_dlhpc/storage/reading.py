"""Reading packed files: own partitions from memory, others by one question to each rank that has them, all checked."""

import io
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib_dlhpc.storage.checksum import ALIGN, WORD, checksum, checksums
from lib_dlhpc.storage.codecs import decompress
from lib_dlhpc.storage.errors import RankLost, StoreError
from lib_dlhpc.storage.index import Index, Manifest
from lib_dlhpc.storage.partition import Partition, gather
from lib_dlhpc.storage.placement import Holders, sources
from lib_dlhpc.storage.remote import Peers, Ticket, pieces

LARGE = 1 << 18  # B; a file from this size on travels alone, without a copy on the way
READ = 2  # a question: files by number; the answer is their bytes, each filled up to a word
_KEPT = 1 << 26  # B; a larger room is not kept for the next batch


class Batch(NamedTuple):
    """Small files that are being read into one room: their places in the result, numbers, B, first words there."""

    places: np.ndarray
    numbers: np.ndarray
    stored: np.ndarray
    starts: np.ndarray
    room: np.ndarray
    tickets: list[Ticket]


class Arriving(NamedTuple):
    """A large file on its way from another rank: its place in the result, and the bytes that become it uncopied."""

    place: int
    buffer: io.BytesIO
    ticket: Ticket


class Reader:
    """Reads files of a store by their numbers, for any thread of this rank, and answers such questions of others."""

    def __init__(
        self, target: Path, manifest: Manifest, index: Index, held: dict[int, Partition], place: Holders,
        rank: int,
    ) -> None:  # fmt: skip
        self.index = index
        self.peers: Peers | None = None
        self._target, self._manifest = target, manifest
        self._held, self._place, self._rank = held, place, rank
        self._sources = np.array(sources(place, rank), np.int64)
        self._lost: set[int] = set()
        self._rooms = threading.local()

    def read(self, wanted: np.ndarray) -> list[bytes]:
        """Return the contents of files in the order of their numbers. Raises StoreError."""
        while True:
            try:
                return self._read(wanted)
            except RankLost as error:
                if not self._ask_others(error.rank):
                    raise

    def read_own(self, number: int) -> bytes | None:
        """Return the content of one file, or None where another rank has to be asked. Raises StoreError."""
        if self.index.columns["partition"][number].item() not in self._held:
            return None
        data = self._own(number)
        return self._unpacked(number, data) if self.index.columns["codec"][number] else data

    def answer(self, payload: memoryview, room: Callable[[int], memoryview]) -> list[memoryview]:
        """Return the bytes of files that another rank asks for: a large one as it lies there."""
        numbers = np.frombuffer(payload, np.int64)
        stored = self.index.columns["stored"][numbers]
        if stored[0] >= LARGE:
            return pieces(self._view(int(numbers[0])))
        words = -(-stored // ALIGN)
        ends = np.cumsum(words)
        lent = room(ALIGN * int(ends[-1]))
        self._gather(lent, numbers, ends - words, words)
        return [lent]

    def close(self) -> None:
        """Let go of the partitions."""
        self._held = {}

    def _read(self, wanted: np.ndarray) -> list[bytes]:
        columns = self.index.columns
        stored, source = columns["stored"][wanted], self._sources[columns["partition"][wanted]]
        large, here = stored >= LARGE, source == self._rank
        found = [b""] * len(wanted)
        arriving = [
            self._send_for(place, int(wanted[place]), int(stored[place]), int(source[place]))
            for place in np.flatnonzero(large & ~here).tolist()
        ]
        small = np.flatnonzero((stored > 0) & ~large)
        batch = self._begin(small, wanted[small], source[small]) if small.size else None
        for place in np.flatnonzero(large & here).tolist():
            found[place] = self._own(int(wanted[place]))
        for place, buffer, ticket in arriving:
            self._wait([ticket])
            found[place] = self._arrived(int(wanted[place]), buffer)
        if batch:
            for place, data in zip(batch.places.tolist(), self._finish(batch), strict=True):
                found[place] = data
        for place in np.flatnonzero(columns["codec"][wanted]).tolist():
            found[place] = self._unpacked(int(wanted[place]), found[place])
        return found

    def _begin(self, places: np.ndarray, numbers: np.ndarray, source: np.ndarray) -> Batch:
        """Ask other ranks for their part of a batch, then copy one's own."""
        if self.peers:
            order = np.argsort(source, kind="stable")
            places, numbers, source = places[order], numbers[order], source[order]
        stored = self.index.columns["stored"][numbers]
        words = -(-stored // ALIGN)
        ends = np.cumsum(words)
        starts = ends - words
        room = self._room(int(ends[-1]))
        view, tickets = room.data.cast("B"), []
        cuts = [0, *(np.flatnonzero(np.diff(source)) + 1).tolist(), len(source)]
        own = slice(0, 0)
        for first, last in pairwise(cuts):
            if source[first] == self._rank:
                own = slice(first, last)
                continue
            part = view[ALIGN * int(starts[first]) : ALIGN * int(ends[last - 1])]
            tickets.append(self._ask(int(source[first]), numbers[first:last], [part]))
        self._gather(view, numbers[own], starts[own], words[own])
        return Batch(places, numbers, stored, starts, room, tickets)

    def _finish(self, batch: Batch) -> list[bytes]:
        """Return the files of a batch once all are there and what they should be."""
        self._wait(batch.tickets)
        found = checksums(batch.room, batch.starts, batch.stored)
        wanted = self.index.columns["checksum"][batch.numbers].tolist()
        if found != wanted:
            raise self._damaged(int(batch.numbers[np.flatnonzero(np.not_equal(found, wanted))[0]]))
        view, starts = batch.room.data.cast("B"), (ALIGN * batch.starts).tolist()
        ends = (ALIGN * batch.starts + batch.stored).tolist()
        return [bytes(view[start:end]) for start, end in zip(starts, ends, strict=True)]

    def _gather(
        self, room: memoryview, numbers: np.ndarray, starts: np.ndarray, words: np.ndarray
    ) -> None:
        columns = self.index.columns
        gather(
            self._held, room,
            zip(columns["partition"][numbers].tolist(), columns["offset"][numbers].tolist(),
                (ALIGN * starts).tolist(), (ALIGN * words).tolist(), strict=True),
        )  # fmt: skip

    def _send_for(self, place: int, number: int, stored: int, rank: int) -> Arriving:
        buffer = io.BytesIO(bytes(stored))
        ticket = self._ask(rank, np.array([number]), pieces(buffer.getbuffer()))
        return Arriving(place, buffer, ticket)

    def _arrived(self, number: int, buffer: io.BytesIO) -> bytes:
        data = buffer.getvalue()
        if checksum(data) != self.index.columns["checksum"][number]:
            raise self._damaged(number)
        return data

    def _own(self, number: int) -> bytes:
        data = bytes(self._view(number))
        if checksum(data) != self.index.columns["checksum"][number]:
            raise self._damaged(number)
        return data

    def _view(self, number: int) -> memoryview:
        entry = self.index.entry(number)
        return self._held[entry.partition].content[entry.offset : entry.offset + entry.stored]

    def _ask(self, rank: int, numbers: np.ndarray, into: list[memoryview]) -> Ticket:
        assert self.peers  # a source that is not this rank is one of them
        return self.peers.ask(rank, READ, numbers.tobytes(), into, partial(self._about, numbers))

    def _wait(self, tickets: list[Ticket]) -> None:
        if tickets and self.peers:
            try:
                self.peers.wait(tickets)
            except StoreError:
                self._rooms.room = None  # late answers must not land in the next batch
                raise

    def _ask_others(self, lost: int) -> bool:
        """Ask other holders for what a lost rank held; return whether any partition has another."""
        self._lost.add(lost)
        moved = False
        for part in np.flatnonzero(self._sources == lost).tolist():
            others = [rank for rank in self._place[part] if rank not in self._lost]
            if others:
                self._sources[part], moved = others[0], True
        return moved

    def _room(self, words: int) -> np.ndarray:
        """Return this thread's room for a batch, of exactly so many words."""
        room = getattr(self._rooms, "room", None)
        if room is None or room.size < words:
            room = np.zeros(words, WORD)
            self._rooms.room = room if room.nbytes <= _KEPT else None
        return room[:words]

    def _unpacked(self, number: int, data: bytes) -> bytes:
        columns = self.index.columns
        try:
            return decompress(data, int(columns["codec"][number]), int(columns["size"][number]))
        except StoreError as error:
            raise StoreError(f"{self._where(number)}: {error}.") from None

    def _damaged(self, number: int) -> StoreError:
        return StoreError(
            f"{self._where(number)}: its checksum is not the one it was packed with; it is damaged. "
            "`dlhpc store verify` lists everything that is."
        )

    def _where(self, number: int) -> str:
        part = self._manifest.partitions[int(self.index.columns["partition"][number])].name
        return f"{self.index.names[number]!r} in {part} of {self._target}"

    def _about(self, numbers: np.ndarray) -> str:
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        return f"{self._where(int(numbers[0]))}{more}"
