"""Reading packed files: own partitions from memory, others by one question to each rank that has them, all checked."""

import io
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import numpy as np

from lib_dlhpc.storage.checksum import ALIGN, WORD, checksum, checksums
from lib_dlhpc.storage.codecs import decompress
from lib_dlhpc.storage.errors import RankLost, StoreError
from lib_dlhpc.storage.index import Index, Manifest
from lib_dlhpc.storage.partition import Partition, preload, views
from lib_dlhpc.storage.placement import Holders, sources
from lib_dlhpc.storage.remote import Peers, Ticket, pieces

LARGE = 1 << 18  # B; a file from this size on travels alone, without a copy on the way
READ = 2  # a question: files by number; the answer is their bytes, each filled up to a word
_KEPT = 1 << 23  # words; a larger room is not kept for the next batch


class Batch(NamedTuple):
    """Small files that are being read into one room: their places in the result, numbers, B, first words there."""

    places: np.ndarray
    numbers: np.ndarray
    stored: np.ndarray
    starts: np.ndarray
    own: slice
    room: np.ndarray
    tickets: list[Ticket]


class Arriving(NamedTuple):
    """A large file on its way from another rank: its place in the result, and the bytes that become it uncopied."""

    place: int
    buffer: io.BytesIO
    view: memoryview
    ticket: Ticket


class Started(NamedTuple):
    """A reading that is under way: numbers of files, those that other ranks have been asked for."""

    wanted: np.ndarray
    own: list[int]
    arriving: list[Arriving]
    batch: Batch | None


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
        self._rooms: list[np.ndarray] = []
        self._closing = Event()
        Thread(target=preload, args=(held.values(), self._closing), daemon=True).start()

    def start(self, wanted: np.ndarray) -> Started:
        """Ask other ranks for the files that they have, by number; `finish` returns the contents of all."""
        columns = self.index.columns
        stored, source = columns["stored"][wanted], self._sources[columns["partition"][wanted]]
        large, here = stored >= LARGE, source == self._rank
        arriving = [
            self._send_for(place, int(wanted[place]), int(stored[place]), int(source[place]))
            for place in np.flatnonzero(large & ~here).tolist()
        ]
        small = np.flatnonzero((stored > 0) & ~large)
        batch = self._begin(small, wanted[small], source[small]) if small.size else None
        return Started(wanted, np.flatnonzero(large & here).tolist(), arriving, batch)

    def finish(self, started: Started) -> list[bytes]:
        """Return the contents of files in the order of their numbers. Raises StoreError."""
        while True:
            try:
                return self._finish(started)
            except RankLost as error:
                if not self._ask_others(error.rank):
                    raise
                started = self.start(started.wanted)

    def read_own(self, number: int) -> bytes | None:
        """Return the content of one file, or None where another rank has to be asked. Raises StoreError."""
        if self.index.columns["partition"][number].item() not in self._held:
            return None
        data = self._own(number)
        return self._unpacked(number, data) if self.index.columns["codec"][number] else data

    def answer(self, payload: memoryview) -> Sequence[memoryview | bytes]:
        """Return the bytes of files that another rank asks for: a large one as it lies there."""
        numbers = np.frombuffer(payload, np.int64)
        if self.index.columns["stored"][numbers[0]] >= LARGE:
            return pieces(self._view(int(numbers[0])))
        return [b"".join(self._views(numbers))]

    def close(self) -> None:
        """Let go of the partitions."""
        self._closing.set()
        self._held = {}

    def _finish(self, started: Started) -> list[bytes]:
        wanted = started.wanted
        found = [b""] * len(wanted)
        for place in started.own:
            found[place] = self._own(int(wanted[place]))
        for place, buffer, view, ticket in started.arriving:
            self._wait([ticket])
            for lent in (*ticket.into, view):  # else getvalue copies
                lent.release()
            found[place] = self._arrived(int(wanted[place]), buffer)
        if started.batch:
            contents = self._end(started.batch)
            for place, data in zip(started.batch.places.tolist(), contents, strict=True):
                found[place] = data
        for place in np.flatnonzero(self.index.columns["codec"][wanted]).tolist():
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
        return Batch(places, numbers, stored, starts, own, room, tickets)

    def _end(self, batch: Batch) -> list[bytes]:
        """Return the files of a batch once all are there and what they should be."""
        view, own = batch.room.data.cast("B"), batch.own
        starts = ALIGN * batch.starts
        for start, piece in zip(starts[own].tolist(), self._views(batch.numbers[own]), strict=True):
            view[start : start + len(piece)] = piece
        self._wait(batch.tickets)
        right = (
            checksums(batch.room, batch.starts, batch.stored)
            == self.index.columns["checksum"][batch.numbers]
        )
        if not right.all():
            raise self._damaged(int(batch.numbers[np.argmin(right)]))
        contents = [
            view[start:end].tobytes()
            for start, end in zip(starts.tolist(), (starts + batch.stored).tolist(), strict=True)
        ]
        self._rooms.append(batch.room)
        return contents

    def _views(self, numbers: np.ndarray) -> list[memoryview]:
        """Return where own files lie, each filled up to a word."""
        columns = self.index.columns
        spans = ALIGN * -(-columns["stored"][numbers] // ALIGN)
        return views(self._held, columns["partition"][numbers], columns["offset"][numbers], spans)

    def _send_for(self, place: int, number: int, stored: int, rank: int) -> Arriving:
        buffer = io.BytesIO(bytes(stored))
        view = buffer.getbuffer()
        return Arriving(place, buffer, view, self._ask(rank, np.array([number]), pieces(view)))

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
        if tickets:
            assert self.peers
            self.peers.wait(tickets)

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
        """Return a room for a batch; one that was given back if it is large enough, for memory is dear when new."""
        while self._rooms:
            room = self._rooms.pop()
            if words <= room.size <= max(_KEPT, words):
                return room
        return np.zeros(words, WORD)

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
