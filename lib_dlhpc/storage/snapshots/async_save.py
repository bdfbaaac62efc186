"""Asynchronous saving: training blocks for a copy; a thread chunks, hashes and writes it.

The copy goes into buffers that are reused for the next version. hashlib and file writes release the GIL, so
training continues.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.storage.snapshots.chunks import Array, Stream, bytes_of
from lib_dlhpc.storage.snapshots.version import Version

PIECE = 4 * 1024 * 1024  # bytes of a buffer: a multiple of every chunk


class Saving:
    """An asynchronous save in flight.

    waited: s that the caller was blocked by the previous save. copied: s for the copy. begun, ended:
    s of time.perf_counter; ended is NaN until the version is published, or has failed.
    """

    def __init__(self, waited: float) -> None:
        self.waited, self.copied = waited, 0.0
        self.begun, self.ended = time.perf_counter(), math.nan
        self._done = threading.Event()
        self._version: Version | None = None
        self._error: BaseException | None = None
        self.raised = False  # the error

    @property
    def done(self) -> bool:
        """Whether it is published, or has failed."""
        return self._done.is_set()

    def wait(self) -> Version:
        """Return the version when it is published. Raises the error of the save."""
        self._done.wait()
        if self._error is not None:
            self.raised = True
            raise self._error
        assert self._version is not None
        return self._version

    def settle(self) -> None:
        """Wait until it has ended. Raises its error, unless raised before."""
        self._done.wait()
        if self._error is not None and not self.raised:
            self.wait()

    def end(self, version: Version | None, error: BaseException | None) -> None:
        """Record the result."""
        self._version, self._error, self.ended = version, error, time.perf_counter()
        self._done.set()


class Part(NamedTuple):
    """Bytes of an array; `frees` is their buffer, free after its last part."""

    bytes: Array
    frees: Array | None


class Abandoned(Exception):
    """The caller failed before all data was copied."""


class AsyncSaver:
    """Buffers, and a thread for each version; at most one at a time.

    room: B of the buffers; the copy blocks when they are full.
    """

    def __init__(self, room: float = math.inf) -> None:
        self.most = max(2, math.ceil(room / PIECE)) if math.isfinite(room) else math.inf
        self.free: SimpleQueue[Array] = SimpleQueue()
        self.made = 0
        self.going: Saving | None = None

    def settle(self) -> None:
        """Wait for the save in flight. Raises its error."""
        if self.going is not None:
            going, self.going = self.going, None
            going.settle()

    def save(
        self, streams: Iterable[Stream], write: Callable[[Iterator[Stream]], Version]
    ) -> Saving:
        """Copy the streams; return while a thread runs `write` on the copy."""
        begin = time.perf_counter()
        self.settle()
        self.going = saving = Saving(time.perf_counter() - begin)
        queue: SimpleQueue[Any] = SimpleQueue()

        def work() -> None:
            version, error = None, None
            parts = self._parts(queue)
            try:
                version = write(self._taken(parts))
            except BaseException as problem:
                error = problem
            with suppress(Abandoned):
                for _ in parts:  # the caller may wait for buffers
                    pass
            saving.end(version, error)

        thread = threading.Thread(target=work, name="snapshot")
        thread.start()
        try:
            self._hand_over(streams, queue)
        except BaseException:
            queue.put(Abandoned())
            thread.join()
            saving.raised = True
            raise
        saving.copied = time.perf_counter() - saving.begun
        return saving

    def _hand_over(self, streams: Iterable[Stream], queue: "SimpleQueue[Any]") -> None:
        """Copy all bytes into buffers, one filled after the other."""
        buffer, used = self._buffer(), 0
        try:
            for stream in streams:
                queue.put(stream._replace(arrays=()))
                for array in stream.arrays:
                    flat = np.frombuffer(bytes_of(array), np.uint8)
                    while flat.size:
                        count = min(flat.size, PIECE - used)
                        buffer[used : used + count] = flat[:count]
                        full = used + count == PIECE
                        queue.put(Part(buffer[used : used + count], buffer if full else None))
                        flat, used = flat[count:], used + count
                        if full:
                            buffer, used = self._buffer(), 0
        finally:
            queue.put(Part(buffer[:0], buffer))
        queue.put(None)

    def _buffer(self) -> Array:
        try:
            return self.free.get_nowait()
        except Empty:
            if self.made >= self.most:
                return self.free.get()
            self.made += 1
            return np.empty(PIECE, np.uint8)

    def _taken(self, parts: Iterator[Any]) -> Iterator[Stream]:
        """Yield the streams from the buffers, in the thread."""
        held: list[Any] = [None]  # the head of the next stream

        def arrays() -> Iterator[Array]:
            for item in parts:
                if isinstance(item, Stream):
                    held[0] = item
                    return
                yield item
            held[0] = None

        for _ in arrays():
            pass
        while held[0] is not None:
            head, held[0] = held[0], None
            own = arrays()
            yield head._replace(arrays=own)
            for _ in own:
                pass

    def _parts(self, queue: "SimpleQueue[Any]") -> Iterator[Any]:
        """Yield heads of streams and bytes; recycle buffers once consumed."""
        while (item := queue.get()) is not None:
            if isinstance(item, Abandoned):
                raise item
            if isinstance(item, Part):
                yield item.bytes
                if item.frees is not None:
                    self.free.put(item.frees)
            else:
                yield item
