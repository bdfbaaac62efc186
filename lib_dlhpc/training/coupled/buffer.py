"""Bounded buffer of batches in flight from simulating to training ranks: at most `depth` batches.

A training rank posts receives for `depth` batches, so a send starts at once. After it takes a batch out, it sends a
credit to all simulating ranks; only then may they send the batch `depth` positions later.
Each simulating rank holds some rows of all samples, each training rank needs all rows of some samples: an
M-to-N redistribution, one message for each pair.
"""

from collections.abc import Callable, Sequence
from time import sleep
from typing import Any

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.spec.workflow import Workflow, share
from lib_dlhpc.training.coupled.calls import Calls

BATCH, CREDIT = 1, 2  # tags
NAP = 5e-5  # s; a waiting rank yields its core


def wait_until(done: Callable[[], bool]) -> None:
    """Wait without keeping a core busy."""
    while not done():
        sleep(NAP)


class BatchSender:
    """The sending end, on a simulating rank."""

    def __init__(
        self, workflow: Workflow, comm: Any, training: Sequence[int], calls: Calls
    ) -> None:
        self.comm, self.training, self.calls = comm, training, calls
        self.depth, self.samples = workflow.coupling.depth, workflow.batch
        # Batches sent, and batches that all training ranks have consumed.
        self.given = self.freed = 0
        self._empty = np.empty(0)
        self._credits = [comm.Irecv(self._empty, to, CREDIT) for to in training]
        self._in_flight: list[tuple[Any, Floats]] = []

    def send(self, made: Floats) -> None:
        """Wait for a credit, then start sending a batch; `made`: (2, samples, rows, grid)."""
        self._wait_for_credit()
        start = self.calls.now()
        for place, to in enumerate(self.training):
            part = np.ascontiguousarray(made[:, share(self.samples, place, len(self.training))])
            begun = self.calls.now()
            request = self.comm.Isend(part, to, BATCH)
            self.calls.record_send("MPI_Isend", begun, part.nbytes, to, BATCH, self.given)
            self._in_flight.append((request, part))
        self.given += 1
        self.calls.add("wait", "give a batch", start, self.calls.now())

    def has_credit(self) -> bool:
        """Whether a batch may be sent now."""
        return self.given < self.freed + self.depth or self._freed_one()

    def progress(self) -> None:
        """Progress messages in flight and drop completed ones."""
        self._in_flight = [message for message in self._in_flight if not message[0].Test()]

    def close(self) -> None:
        """Wait until all batches are delivered and taken out."""
        start = self.calls.now()
        wait_until(self._all_arrived)
        while self.freed < self.given:
            wait_until(self._freed_one)
        for request in self._credits:
            request.Cancel()
            request.Wait()
        self.calls.add("wait", "all done", start, self.calls.now())

    def _wait_for_credit(self) -> None:
        start, freed = self.calls.now(), self.freed
        wait_until(self.has_credit)
        if self.freed > freed:
            for to in self.training:
                self.calls.record_receive("MPI_Wait", start, 0, to, CREDIT, freed)
            self.calls.add("wait", "wait for room", start, self.calls.now())

    def _all_arrived(self) -> bool:
        self.progress()
        return not self._in_flight

    def _freed_one(self) -> bool:
        """Whether all training ranks have taken out the oldest batch."""
        self.progress()
        if not all(request.Test() for request in self._credits):
            return False
        self.freed += 1
        self._credits = [self.comm.Irecv(self._empty, to, CREDIT) for to in self.training]
        return True


class BatchReceiver:
    """The receiving end, on a training rank. x, y: the last samples taken, (own samples, 1, grid, grid)."""

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
        self._sent_credits: list[Any] = []
        for slot in range(min(self.depth, self.left)):
            self._post(slot)

    def has_arrived(self) -> bool:
        """Whether the next batch has arrived."""
        return all(request.Test() for request in self._requests[self.taken % self.depth])

    def take(self) -> None:
        """Wait for the next batch, take it out and send a credit to the simulating ranks."""
        start, slot = self.calls.now(), self.taken % self.depth
        wait_until(self.has_arrived)
        for part, giver in zip(self._slots[slot], self.simulating, strict=True):
            self.calls.record_receive("MPI_Wait", start, part.nbytes, giver, BATCH, self.taken)
        there = self.calls.now()
        self.calls.add("wait", "wait for samples", start, there)
        for part, rows in zip(self._slots[slot], self.rows, strict=True):
            self.x[:, 0, rows], self.y[:, 0, rows] = part
        if self.taken + self.depth < self.left:
            self._post(slot)
        self._sent_credits = [request for request in self._sent_credits if not request.Test()]
        for giver in self.simulating:
            begun = self.calls.now()
            self._sent_credits.append(self.comm.Isend(np.empty(0), giver, CREDIT))
            self.calls.record_send("MPI_Isend", begun, 0, giver, CREDIT, self.taken)
        self.taken += 1
        self.calls.add("wait", "take a batch", there, self.calls.now())

    def close(self) -> None:
        """Wait until all credits are delivered."""
        for request in self._sent_credits:
            request.Wait()

    def _post(self, slot: int) -> None:
        self._requests[slot] = [
            self.comm.Irecv(part, giver, BATCH)
            for part, giver in zip(self._slots[slot], self.simulating, strict=True)
        ]
