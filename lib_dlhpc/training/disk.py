"""Disk: a file in the place of memory, which a thread of its own reads and writes while the caller computes.

Not a memory map: its pages would count as the process's memory. Whole pieces go from an array to the file
and back. The file has no name from the start, so nothing of it is left however the process ends.
"""

import os
from dataclasses import dataclass
from errno import EIO
from pathlib import Path
from queue import SimpleQueue
from tempfile import mkstemp
from threading import Condition, Thread
from types import TracebackType

import numpy as np

from lib_dlhpc.training.layers.kept import Array

LOOK = 0.5  # s between two looks at whether the thread still lives


@dataclass(frozen=True)
class _Job:
    writes: bool
    place: int
    bytes: memoryview


class Disk:
    """Pieces of a file, read and written in the order in which they are asked for.

    A write followed by a read of the same place needs no wait between them. An array belongs to the thread
    until its number has been waited for. Errors of the thread are the caller's as soon as it waits:
    OSError of the system's kind, with the file's name; RuntimeError if the thread has ended.
    """

    def __init__(self, folder: Path, name: str) -> None:
        if not hasattr(os, "preadv"):
            raise RuntimeError("training out of core needs a system with preadv: Linux or macOS.")
        folder.mkdir(parents=True, exist_ok=True)
        self._file, path = mkstemp(f".{os.getpid()}", f"{name}-", folder)
        os.unlink(path)
        self.path = Path(path)
        self._asked = self._done = 0
        self._changed = Condition()
        self._error: BaseException | None = None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=f"disk {self.path}", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Disk":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def extend(self, size: int) -> None:
        """Let so many B read as zeros until something is written there."""
        os.ftruncate(self._file, size)

    def write(self, place: int, array: Array) -> int:
        """Begin to write an array, in the order in which it lies in memory; return a number to wait for."""
        return self._ask(True, place, array)

    def read(self, place: int, array: Array) -> int:
        """Begin to fill an array; return a number to wait for."""
        return self._ask(False, place, array)

    def wait(self, number: int) -> None:
        """Return when what has this number is done, and so is all before it."""
        with self._changed:
            while self._done < number and self._error is None:
                if not self._changed.wait(LOOK) and not self._thread.is_alive():
                    raise RuntimeError(
                        f"{self.path}: the thread that reads and writes it has ended."
                    )
        if isinstance(self._error, OSError):
            raise OSError(self._error.errno, self._error.strerror, str(self.path)) from self._error
        if self._error is not None:
            raise RuntimeError(f"{self.path}: {self._error!r}") from self._error

    def close(self) -> None:
        """Give the file's space back; what waits is not done any more."""
        if self._error is None:
            self._error = RuntimeError("closed")
        self._jobs.put(None)
        self._thread.join()
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _ask(self, writes: bool, place: int, array: Array) -> int:
        self._asked += 1
        self._jobs.put(_Job(writes, place, array.reshape(-1).view(np.uint8).data))
        return self._asked

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if self._error is None:
                    self._move(job)
            except BaseException as error:
                self._error = error
            del job  # and with it the array, before anybody is told
            with self._changed:
                self._done += 1
                self._changed.notify_all()

    def _move(self, job: _Job) -> None:
        done = 0
        while done < len(job.bytes):
            move = os.pwritev if job.writes else os.preadv
            moved = move(self._file, [job.bytes[done:]], job.place + done)
            if moved == 0:
                raise OSError(EIO, f"ended after {done} B of {len(job.bytes)} B at {job.place}")
            done += moved
