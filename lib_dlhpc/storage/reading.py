"""Reading packed files: own partitions from memory, others by one request per rank, all verified."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lib_dlhpc.storage.checksum import checksum
from lib_dlhpc.storage.codecs import decompress
from lib_dlhpc.storage.errors import RankLost, StoreError
from lib_dlhpc.storage.fresh import fresh
from lib_dlhpc.storage.index import Index, Manifest
from lib_dlhpc.storage.loading import Loading
from lib_dlhpc.storage.partition import Partition
from lib_dlhpc.storage.placement import Holders, sources
from lib_dlhpc.storage.remote import Peers, Ticket, pieces

LARGE = 1 << 18  # B; a file from this size on has its own message, without a copy
READ = 2  # a request: files by number; the reply is their bytes
_KEPT = 1 << 26  # B; a larger buffer is not reused for the next batch


class Batch(NamedTuple):
    """Small files in flight from another rank into one buffer: positions in the result, numbers, end offsets."""

    places: list[int]
    numbers: np.ndarray
    ends: np.ndarray
    room: bytearray
    ticket: Ticket


class Arriving(NamedTuple):
    """A large file in flight from another rank: its position in the result, and its buffer."""

    place: int
    data: bytes
    ticket: Ticket


class Started(NamedTuple):
    """A read in flight: numbers of files; positions of own ones, None for all; requests to other ranks."""

    wanted: np.ndarray
    own: np.ndarray | None
    arriving: list[Arriving]
    batches: list[Batch]


class Reader:
    """Reads files of a store by number, for any thread of this rank, and serves requests of other ranks."""

    def __init__(
        self,
        target: Path,
        manifest: Manifest,
        index: Index,
        held: dict[int, Partition],
        place: Holders,
        rank: int,
        loading: Loading,
    ) -> None:
        self.index = index
        self.peers: Peers | None = None
        self._target, self._manifest = target, manifest
        self._held, self._place, self._rank = held, place, rank
        self._sources = np.array(sources(place, rank), np.int64)
        self._lost: set[int] = set()
        self._rooms: list[bytearray] = []
        self._loading = loading

    def start(self, wanted: np.ndarray) -> Started:
        """Request files by number from the ranks that have them; `finish` returns the contents of all."""
        self._loading.wait()
        columns = self.index.columns
        source = self._sources[columns["partition"][wanted]]
        own = source == self._rank
        if own.all():
            return Started(wanted, None, [], [])
        stored = columns["stored"][wanted]
        arriving = [
            self._send_for(place, int(wanted[place]), int(stored[place]), int(source[place]))
            for place in np.flatnonzero((stored >= LARGE) & ~own).tolist()
        ]
        small = (stored > 0) & (stored < LARGE) & ~own
        batches = [
            self._begin(np.flatnonzero(small & (source == rank)), wanted, rank)
            for rank in np.unique(source[small]).tolist()
        ]
        return Started(wanted, np.flatnonzero(own), arriving, batches)

    def finish(self, started: Started) -> list[bytes]:
        """Return the contents of files in the order of their numbers. Raises StoreError."""
        while True:
            try:
                return self._finish(started)
            except RankLost as error:
                self.drop(started)
                if not self._ask_others(error.rank):
                    raise
                started = self.start(started.wanted)
            except BaseException:
                self.drop(started)
                raise

    def drop(self, started: Started) -> None:
        """Abandon the requests in flight."""
        tickets = [one.ticket for one in started.arriving] + [
            batch.ticket for batch in started.batches
        ]
        for ticket in tickets:
            assert self.peers
            self.peers.drop(ticket)

    def read_own(self, number: int) -> bytes | None:
        """Return the content of one file, or None if another rank has it. Raises StoreError."""
        if self.index.columns["partition"][number].item() not in self._held:
            return None
        (data,) = self._own(np.array([number]))
        return self._unpacked(number, data) if self.index.columns["codec"][number] else data

    def answer(self, payload: memoryview) -> Sequence[memoryview | bytes]:
        """Return the bytes of files that another rank requests; large ones without a copy."""
        numbers = np.frombuffer(payload, np.int64)
        views = [part.content[place] for part, place in self._spans(numbers)]
        return pieces(views[0]) if len(views[0]) >= LARGE else [b"".join(views)]

    def close(self) -> None:
        """Release the partitions."""
        self._loading.stop()
        self._held = {}

    def _finish(self, started: Started) -> list[bytes]:
        wanted = started.wanted
        if started.own is None:
            found = self._own(wanted)
        else:
            found = [b""] * len(wanted)
            own = self._own(wanted[started.own])
            for place, data in zip(started.own.tolist(), own, strict=True):
                found[place] = data
        for batch in started.batches:
            for place, data in zip(batch.places, self._end(batch), strict=True):
                found[place] = data
        for place, data, ticket in started.arriving:
            self._wait(ticket)
            for lent in ticket.into:
                lent.release()
            found[place] = self._right(int(wanted[place]), data)
        for place in np.flatnonzero(self.index.columns["codec"][wanted]).tolist():
            found[place] = self._unpacked(int(wanted[place]), found[place])
        return found

    def _begin(self, places: np.ndarray, wanted: np.ndarray, rank: int) -> Batch:
        """Request small files from another rank."""
        numbers = wanted[places]
        ends = np.cumsum(self.index.columns["stored"][numbers])
        room = self._room(int(ends[-1]))
        into = memoryview(room)[: int(ends[-1])]
        return Batch(places.tolist(), numbers, ends, room, self._ask(rank, numbers, [into]))

    def _end(self, batch: Batch) -> list[bytes]:
        """Return the files of a batch once all have arrived and are verified."""
        self._wait(batch.ticket)
        (view,) = batch.ticket.into
        cuts, wanted = [0, *batch.ends.tolist()], self.index.columns["checksum"][batch.numbers]
        contents = []
        for number, (start, end), right in zip(
            batch.numbers, pairwise(cuts), wanted.tolist(), strict=True
        ):
            contents.append(data := bytes(view[start:end]))
            if checksum(data) != right:
                raise self._damaged(int(number))
        view.release()
        self._rooms.append(batch.room)
        return contents

    def _own(self, numbers: np.ndarray) -> list[bytes]:
        """Return the verified bytes of own files."""
        contents = []
        wanted = self.index.columns["checksum"][numbers].tolist()
        for (part, place), right in zip(self._spans(numbers), wanted, strict=True):
            contents.append(data := part.take(place))
            if checksum(data) != right:  # at once, while the data is in the core's cache
                raise self._damaged(int(numbers[len(contents) - 1]))
        return contents

    def _spans(self, numbers: np.ndarray) -> Iterator[tuple[Partition, slice]]:
        """Yield the locations of own files."""
        columns = self.index.columns
        parts, starts = columns["partition"][numbers], columns["offset"][numbers]
        places = map(slice, starts.tolist(), (starts + columns["stored"][numbers]).tolist())
        try:
            held = list(map(self._held.__getitem__, parts.tolist()))
        except KeyError as error:
            (lost,) = np.flatnonzero(parts == error.args[0])[:1]
            raise StoreError(
                f"{self._where(int(numbers[lost]))}: that partition is lost."
            ) from None
        return zip(held, places, strict=True)

    def _send_for(self, place: int, number: int, stored: int, rank: int) -> Arriving:
        data, view = fresh(stored)
        return Arriving(place, data, self._ask(rank, np.array([number]), pieces(view)))

    def _right(self, number: int, data: bytes) -> bytes:
        if checksum(data) != self.index.columns["checksum"][number]:
            raise self._damaged(number)
        return data

    def _ask(self, rank: int, numbers: np.ndarray, into: list[memoryview]) -> Ticket:
        assert self.peers  # a source that is not this rank is one of them
        return self.peers.ask(rank, READ, numbers.tobytes(), into, partial(self._about, numbers))

    def _wait(self, ticket: Ticket) -> None:
        assert self.peers
        self.peers.wait([ticket])

    def _ask_others(self, lost: int) -> bool:
        """Request a lost rank's files from other holders; return whether any partition has another."""
        self._lost.add(lost)
        moved = False
        for part in np.flatnonzero(self._sources == lost).tolist():
            others = [rank for rank in self._place[part] if rank not in self._lost]
            if others:
                self._sources[part], moved = others[0], True
        return moved

    def _room(self, size: int) -> bytearray:
        """Return a buffer for a batch; a recycled one if it is large enough, since new memory is slow."""
        while self._rooms:
            room = self._rooms.pop()
            if size <= len(room) <= max(_KEPT, size):
                return room
        return bytearray(size)

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
