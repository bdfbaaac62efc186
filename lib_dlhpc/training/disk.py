"""Disk: a file in place of memory; a background thread reads and writes it while the caller computes.

Not a memory map: its pages would count as resident memory. Whole arrays are copied to the file and back. The file
is unlinked at once, so it leaves nothing behind however the process ends.
"""

import os
from dataclasses import dataclass
from errno import EIO
from pathlib import Path
from queue import SimpleQueue
from tempfile import mkstemp
from threading import Condition, Thread

import numpy as np

from lib_dlhpc.layers.base.saved import Array

LOOK = 0.5  # s between checks that the thread is alive


@dataclass(frozen=True)
class _Job:
    writes: bool
    place: int
    bytes: memoryview


class Disk:
    """Pieces of a file, read and written in the order of the requests.

    A write followed by a read of the same offset needs no wait in between. An array belongs to the thread until
    its request number has been waited for. wait() raises the thread's errors: OSError with the system's errno and
    the file's name, RuntimeError if the thread has ended.
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def extend(self, size: int) -> None:
        """Extend the file to `size` B; unwritten ranges read as zeros."""
        os.ftruncate(self._file, size)

    def write(self, place: int, array: Array) -> int:
        """Start writing an array in memory order; return its request number."""
        return self._ask(True, place, array)

    def read(self, place: int, array: Array) -> int:
        """Start filling an array; return its request number."""
        return self._ask(False, place, array)

    def wait(self, number: int) -> None:
        """Return when this request and all before it are complete."""
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
        """Release the file; pending requests are dropped."""
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
            del job  # release the array before notifying
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
