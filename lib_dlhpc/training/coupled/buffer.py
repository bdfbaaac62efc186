"""Batches on their way from the ranks that simulate to those that train: `depth` of them and no more.

Who trains has receives posted for `depth` batches, so a batch that is given is on its way at once. Who has
taken a batch out says so to all that simulate, and only then the batch `depth` places later may be given.
Each simulating rank has some rows of all samples, each training rank needs all rows of some samples: N ranks
give to M, a message for each pair.
"""

from collections.abc import Callable, Sequence
from time import sleep
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.workflow import Workflow, share
from lib_dlhpc.training.coupled.calls import Calls

BATCH, ROOM = 1, 2  # tags
NAP = 5e-5  # s; who waits leaves its core to others
Floats = NDArray[Any]


def wait_until(done: Callable[[], bool]) -> None:
    """Wait without keeping a core busy."""
    while not done():
        sleep(NAP)


class Outlet:
    """The end of a simulating rank."""

    def __init__(
        self, workflow: Workflow, comm: Any, training: Sequence[int], calls: Calls
    ) -> None:
        self.comm, self.training, self.calls = comm, training, calls
        self.depth, self.samples = workflow.coupling.depth, workflow.batch
        self.given = self.freed = 0  # batches given, and those of them that everybody has taken out
        self._room = np.empty(0)
        self._rooms = [comm.Irecv(self._room, to, ROOM) for to in training]
        self._under_way: list[tuple[Any, Floats]] = []

    def give(self, made: Floats) -> None:
        """Wait for room, then send a batch on its way; `made`: (2, samples, rows, grid)."""
        self._wait_for_room()
        start = self.calls.now()
        for place, to in enumerate(self.training):
            part = np.ascontiguousarray(made[:, share(self.samples, place, len(self.training))])
            begun = self.calls.now()
            request = self.comm.Isend(part, to, BATCH)
            self.calls.gave("MPI_Isend", begun, part.nbytes, to, BATCH, self.given)
            self._under_way.append((request, part))
        self.given += 1
        self.calls.add("wait", "give a batch", start, self.calls.now())

    def has_room(self) -> bool:
        """Whether a batch may be given now."""
        return self.given < self.freed + self.depth or self._freed_one()

    def carry_on(self) -> None:
        """Let messages under way move, and forget those that have arrived."""
        self._under_way = [each for each in self._under_way if not each[0].Test()]

    def close(self) -> None:
        """Wait until all batches have arrived, and all are taken out."""
        start = self.calls.now()
        wait_until(self._all_arrived)
        while self.freed < self.given:
            wait_until(self._freed_one)
        for request in self._rooms:
            request.Cancel()
            request.Wait()
        self.calls.add("wait", "all done", start, self.calls.now())

    def _wait_for_room(self) -> None:
        start, freed = self.calls.now(), self.freed
        wait_until(self.has_room)
        if self.freed > freed:
            for to in self.training:
                self.calls.got("MPI_Wait", start, 0, to, ROOM, freed)
            self.calls.add("wait", "wait for room", start, self.calls.now())

    def _all_arrived(self) -> bool:
        self.carry_on()
        return not self._under_way

    def _freed_one(self) -> bool:
        """Whether all training ranks have taken the oldest batch out by now."""
        self.carry_on()
        if not all(request.Test() for request in self._rooms):
            return False
        self.freed += 1
        self._rooms = [self.comm.Irecv(self._room, to, ROOM) for to in self.training]
        return True


class Inlet:
    """The end of a training rank. x, y: the samples that it has taken last, (own samples, 1, grid, grid)."""

    def __init__(
        self, workflow: Workflow, comm: Any, simulating: Sequence[int], mine: slice, calls: Calls
    ) -> None:
        self.comm, self.simulating, self.calls = comm, simulating, calls
        self.depth, self.left = workflow.coupling.depth, workflow.batches
        grid = workflow.simulation.grid
        self.rows = [share(grid, place, len(simulating)) for place in range(len(simulating))]
        many = mine.stop - mine.start
        self._slots = [
            [np.empty((2, many, rows.stop - rows.start, grid)) for rows in self.rows]
            for _ in range(self.depth)
        ]
        self.x, self.y = np.empty((2, many, 1, grid, grid))
        self.taken = 0  # batches
        self._requests: list[list[Any]] = [[] for _ in range(self.depth)]
        self._news: list[Any] = []
        for slot in range(min(self.depth, self.left)):
            self._post(slot)

    def is_there(self) -> bool:
        """Whether the next batch is there."""
        return all(request.Test() for request in self._requests[self.taken % self.depth])

    def take(self) -> None:
        """Wait for the next batch, take it out, and let those that simulate know that there is room."""
        start, slot = self.calls.now(), self.taken % self.depth
        wait_until(self.is_there)
        for part, giver in zip(self._slots[slot], self.simulating, strict=True):
            self.calls.got("MPI_Wait", start, part.nbytes, giver, BATCH, self.taken)
        there = self.calls.now()
        self.calls.add("wait", "wait for samples", start, there)
        for part, rows in zip(self._slots[slot], self.rows, strict=True):
            self.x[:, 0, rows], self.y[:, 0, rows] = part
        if self.taken + self.depth < self.left:
            self._post(slot)
        self._news = [request for request in self._news if not request.Test()]
        for giver in self.simulating:
            begun = self.calls.now()
            self._news.append(self.comm.Isend(np.empty(0), giver, ROOM))
            self.calls.gave("MPI_Isend", begun, 0, giver, ROOM, self.taken)
        self.taken += 1
        self.calls.add("wait", "take a batch", there, self.calls.now())

    def close(self) -> None:
        """Wait until everybody knows."""
        for request in self._news:
            request.Wait()

    def _post(self, slot: int) -> None:
        self._requests[slot] = [
            self.comm.Irecv(part, giver, BATCH)
            for part, giver in zip(self._slots[slot], self.simulating, strict=True)
        ]
