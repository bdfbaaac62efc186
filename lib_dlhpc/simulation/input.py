"""Readers and batches fetched ahead: when each rank's next batch is ready, sample by sample.

A rank has readers that take sample after sample of the batches that are ordered, and queue with all others for
the storage (storage.py). A batch is ordered as soon as there is room for it ahead: with a prefetch of d, when
the one d before it is taken, which is when its step begins. The first batch is ready from the start. What a
reader meets varies: a sample is in the cache or not, on this node or another one, behind a long queue or none.

Time does not advance between two batches of ranks that have not been asked for: who starts a step a little
before another one's batch is ready queues behind it for the servers.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.simulation.storage import StoragePath
from lib_dlhpc.spec.experiment import Experiment


def supply(experiment: Experiment, steps: int, seed: int) -> "Supply | None":
    """Return the readers of an experiment that sets their count, or how far they prefetch; else None."""
    storage = experiment.storage
    return Supply(experiment, steps, seed) if storage.workers or storage.prefetch else None


class Supply:
    """The readers of all ranks; `started` records when a step begins, `available` returns when the next can."""

    def __init__(self, experiment: Experiment, steps: int, seed: int) -> None:
        ranks, storage = int(experiment.devices), experiment.storage
        self._way = StoragePath(experiment, seed)
        self._per_node = int(experiment.devices_per_node)
        self._batch = int(experiment.strategy.batch)
        self._ahead = int(storage.prefetch) or steps
        self._left = np.full((steps + 1, ranks), self._batch)
        self._left[0] = 0
        # When a batch begins to arrive and when it is ready, s; the first one is ready.
        self.begun: NDArray[np.float64] = np.zeros((steps + 1, ranks))
        self.ready: NDArray[np.float64] = np.zeros((steps + 1, ranks))
        self._ordered: NDArray[np.float64] = np.zeros((steps + 1, ranks))
        self._orders: list[deque[tuple[int, float]]] = [deque() for _ in range(ranks)]
        # Since when each idle reader of a rank is so; None: readers come with the samples.
        readers = int(storage.workers)
        self._idle = [[0.0] * readers for _ in range(ranks)] if readers else None
        self._events: list[tuple[float, int, int, int, Iterator[float]]] = []
        self._number = 0
        for batch in range(1, min(self._ahead, steps) + 1):
            for rank in range(ranks):
                self._order(batch, rank, 0.0)

    def started(self, step: int, start: Any, rank: int | None = None) -> None:
        """Note that a step begins at `start`, of one rank or of each: there is room for one batch more."""
        batch = step + self._ahead
        if step == 0 or batch >= len(self.ready):
            return
        for reader, time in [(rank, start)] if rank is not None else enumerate(start.tolist()):
            self._order(batch, reader, float(time))

    def available(self, step: int, rank: int | None = None) -> Any:
        """Return when the batch of the step after this one is ready, of one rank or of each."""
        ranks = slice(None) if rank is None else rank
        while np.any(self._left[step + 1, ranks]):
            self._go_on()
        # Batches are handed out in their order, whichever was ready first.
        ready = np.maximum(self.ready[step + 1, ranks], self.ready[step, ranks])
        self.begun[step + 1, ranks] = np.maximum(
            self._ordered[step + 1, ranks], self.ready[step, ranks]
        )
        self.ready[step + 1, ranks] = ready
        return ready

    def _order(self, batch: int, rank: int, time: float) -> None:
        self._ordered[batch, rank] = time
        if self._idle is None:
            for _ in range(self._batch):
                self._read(batch, rank, time)
            return
        self._orders[rank].extend([(batch, time)] * self._batch)
        idle = self._idle[rank]
        while idle and self._orders[rank]:
            self._next(rank, idle.pop())

    def _next(self, rank: int, free: float) -> None:
        batch, ordered = self._orders[rank].popleft()
        self._read(batch, rank, max(free, ordered))

    def _read(self, batch: int, rank: int, time: float) -> None:
        self._later(time, batch, rank, self._way.stages(rank // self._per_node, time))

    def _later(self, time: float, batch: int, rank: int, stages: Iterator[float]) -> None:
        self._number += 1
        heapq.heappush(self._events, (time, self._number, batch, rank, stages))

    def _go_on(self) -> None:
        """Take the earliest sample in flight to its next stage, or give it to its batch and read another."""
        time, _, batch, rank, stages = heapq.heappop(self._events)
        until = next(stages, None)
        if until is not None:
            self._later(until, batch, rank, stages)
            return
        self._left[batch, rank] -= 1
        self.ready[batch, rank] = max(self.ready[batch, rank], time)
        if self._idle is not None:
            if self._orders[rank]:
                self._next(rank, time)
            else:
                self._idle[rank].append(time)
