"""Readers: threads that fetch the batches of the coming steps, in their order, while the caller computes.

A reader takes sample after sample of the batches that are ordered: it reads and verifies the record, waits for the tier
(throttle.py), and spends the CPU time of decoding. A batch is ordered when the batch `ahead` before it is taken, as in
the simulator (lib_dlhpc/simulation/input.py). Without a number of readers there are as many as samples in flight: few
threads read, and a batch is ready when the last of its samples would have arrived.
"""

import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Condition, Event, Thread
from time import perf_counter, thread_time

import numpy as np

from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.training.input.sample_files import SampleFiles
from lib_dlhpc.training.input.throttle import Throttle

AHEAD = 8  # batches, where [storage] says as many as needed
THREADS = 2  # that read where [storage] says so of readers
LATE = 5e-3  # s: a thread wakes later than asked for; its next read makes up for so much
LOOK = 0.5  # s between checks that readers are alive
_WORK = bytes(1 << 16)


@dataclass(eq=False)
class Batch:
    """A batch on its way. Times are of the run's clock, in s."""

    indices: Array
    ordered: float
    left: int = field(init=False)  # samples that have not come
    ready: float = field(init=False)
    samples: list[Array | None] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing has come yet."""
        self.left, self.ready = len(self.indices), self.ordered
        self.samples = [None] * self.left

    @property
    def x(self) -> Array:
        """The samples, in order."""
        return np.stack([sample for sample in self.samples if sample is not None])


class Readers:
    """Batches in the order of `batches`, each an array of sample numbers."""

    def __init__(
        self,
        files: SampleFiles,
        throttle: Throttle,
        batches: Iterator[Array],
        readers: int = 0,
        ahead: int = 0,
        alike: int = 1,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """readers, ahead: 0, as many as needed. alike: ranks that read the same samples. clock: of the run.

        The clock may be set back by time that does not count, such as an evaluation: what was read in it comes later.
        """
        self._clock = clock
        self._files, self._throttle, self._batches = files, throttle, batches
        self._readers, self._alike = readers, alike
        self._orders: deque[Batch] = deque()
        self._queue: SimpleQueue[tuple[Batch, int] | None] = SimpleQueue()
        self._changed, self._stop = Condition(), Event()
        self._error: BaseException | None = None
        self._threads = [
            Thread(target=self._work, name=f"reader {number}", daemon=True)
            for number in range(readers or THREADS)
        ]
        for thread in self._threads:
            thread.start()
        for _ in range(ahead or AHEAD):
            self._order()

    def take(self) -> Batch:
        """Wait for the next batch and return it; order one more. Raises the readers' errors."""
        batch = self._orders.popleft()
        with self._changed:
            while batch.left and self._error is None:
                if not self._changed.wait(LOOK) and not all(
                    thread.is_alive() for thread in self._threads
                ):
                    raise RuntimeError(f"{self._files.folder}: a reader has ended.")
        if self._error is not None:
            raise self._error
        self._sleep(batch.ready)
        self._order()
        return batch

    def close(self) -> None:
        """End the threads; what is in flight is dropped."""
        self._stop.set()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _order(self) -> None:
        with suppress(StopIteration):
            batch = Batch(next(self._batches), self._clock())
            self._orders.append(batch)
            for place in range(batch.left):
                self._queue.put((batch, place))

    def _work(self) -> None:
        free = 0.0
        while (order := self._queue.get()) is not None and not self._stop.is_set():
            batch, place = order
            try:
                free = self._read(
                    batch, place, max(free, batch.ordered) if self._readers else batch.ordered
                )
            except BaseException as error:
                self._error = error
            with self._changed:
                batch.ready = max(batch.ready, free)
                batch.left -= 1
                self._changed.notify_all()

    def _read(self, batch: Batch, place: int, begin: float) -> float:
        """Read a sample that a reader begins with at `begin`; return when it is done."""
        sample = int(batch.indices[place])
        served, until = self._throttle.pass_through(sample, begin, self._alike)
        batch.samples[place] = self._files.read(sample)
        # A queue in front of the servers is of few samples of each rank, so that they serve all ranks alike.
        self._sleep(until if self._readers else served)
        until += self._throttle.decode
        self._decode()
        end = self._clock()
        return until if end < until + LATE else end

    def _decode(self) -> None:
        """Spend the CPU time of decoding a sample, as a decoder in C does: without Python's lock."""
        stop = thread_time() + self._throttle.decode
        while thread_time() < stop and not self._stop.is_set():
            zlib.crc32(_WORK)

    def _sleep(self, until: float) -> None:
        while (left := until - self._clock()) > 0 and not self._stop.wait(left):
            pass
