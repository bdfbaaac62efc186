"""Preloading: a rank's partitions are read from disk sequentially, before random reads begin.

Concurrent random reads cause disk seeks and cost an epoch more than waiting does. Partitions shared by ranks of
one node are read into the page cache. Those that only one rank of a node has, and serves to others, are read into
its own memory, in huge pages: MPI sends from there in half the time.
"""

import mmap
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from threading import Event, Thread

from lib_dlhpc.storage.memory import available
from lib_dlhpc.storage.partition import Partition, kept

PIECE = 1 << 20  # B that are read at once
WAIT = 5.0  # s that readers wait for it; then it continues in the background
_THREADS = 2  # so that the disk has something to do while one of them copies
_APART = 64  # B behind the start of a page: a copy to just behind a place like its own takes twice as long
_SHARE = 0.5  # of the memory that is free on this machine, at most


class Loading:
    """Preloads the partitions `numbers` of `held` in a thread; those of `own` into private memory.

    `held` is changed as they arrive. Nothing is loaded where those of all `neighbors`, the ranks of this machine,
    would take more than half of the available memory.
    """

    def __init__(
        self,
        held: dict[int, Partition],
        numbers: Collection[int],
        own: Collection[int] = (),
        neighbors: int = 1,
    ) -> None:
        self._own, self._stop = own, Event()
        self._until = time.monotonic() + WAIT
        self._threads: list[Thread] = []
        total = sum(len(held[number].content) for number in numbers)
        if neighbors * total <= _SHARE * available():
            waiting = iter(sorted(numbers))
            for _ in range(min(_THREADS, len(numbers))):
                self._threads.append(Thread(target=self._load, args=(waiting, held), daemon=True))
                self._threads[-1].start()

    def wait(self) -> None:
        """Wait until all is loaded, or the timeout."""
        while self._threads:
            self._threads[-1].join(max(0.0, self._until - time.monotonic()))
            self._threads.pop()

    def stop(self) -> None:
        """Stop loading and release the partitions."""
        self._stop.set()

    def _load(self, waiting: Iterator[int], held: dict[int, Partition]) -> None:
        """Load the partitions in order; unreadable ones raise at their first read."""
        scratch = memoryview(bytearray(PIECE))
        for number in waiting:
            if self._stop.is_set():
                return
            part = held[number]
            with suppress(OSError):
                if number not in self._own:
                    self._read(part, None, scratch)
                elif self._read(part, room := _room(len(part.content)), scratch):
                    held[number] = kept(part, room)

    def _read(self, part: Partition, room: memoryview | None, scratch: memoryview) -> bool:
        """Read all of a partition, into a buffer if given; return whether it was complete."""
        size, start = len(part.content), 0
        with open(part.path, "rb", buffering=0) as file:
            while start < size and not self._stop.is_set():
                into = room[start : start + PIECE] if room else scratch[: size - start]
                count = file.readinto(into)
                if not count:
                    break
                start += count
        return start == size


def _room(size: int) -> memoryview:
    """Allocate memory, in huge pages where available."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return memoryview(bytearray(size))
    room = mmap.mmap(-1, size + _APART, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # memory that processes share has none, mostly
        room.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(room)[_APART:]
