"""Requests between the ranks of a store, while the ranks compute.

A question is one message to a rank; the answer is received into the asking rank's buffers. A thread of each rank
answers. It must not slow computation, so it sleeps, longer after longer idle periods; a rank that waits
for an answer serves requests itself, so ranks that all read at once never wait for a sleeping thread.
MPI's blocking calls would keep a core busy; everything here polls. A forked process has neither the thread nor
MPI: its calls raise an error.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.storage.errors import RankLost, StoreError

PIECE = 1 << 26  # B of a message at most; each costs a round trip of its own
PATIENCE = 30.0  # s until a rank that does not answer counts as lost
CLOSE, PING, LEAVE = 0, 1, -1  # questions of this module; others are the caller's
_QUESTION = 1  # the tag of all questions; an answer has its question's own, an odd number
_HEAD = 16  # B: kind, tag
_AWAKE = 1e-4  # s of polling without sleep after a question, or after an answer has left
_CHECKS = 4e9  # B/s at which a reader uses an answer before its next request
_READS = 1e-3  # s after which a reader without a next request is assumed to compute
_ALERT = 5e-3  # s of short sleeps after a question: the next is often near
_SPIN = 1e-3  # s that a reader polls for its answer without sleep, yielding the core
_STOPPED = 0.25  # s between two looks for an answer; after longer ones this rank itself was stopped
_AFTER = 0.5  # s for the last answers to complete; later ones were abandoned by the asking rank
_SLEEP, _LONGEST = 5e-5, 2e-3  # s, the first sleep and the longest
_FORKED = (
    "a forked process cannot ask rank {rank}, which has it. Use threads, or open the store with a copy of every"
    " partition on each node (replication = the number of nodes); those are read in forked processes too."
)

Answer = Callable[[int, int, memoryview], Sequence[Any]]
_KEPT: list[Any] = []  # tickets without an answer: MPI may still write to their buffers
_yield = getattr(os, "sched_yield", lambda: time.sleep(0))


class Ticket(NamedTuple):
    """A request in flight: rank, subject, messages and receive buffers."""

    rank: int
    about: Callable[[], str]
    tag: int
    requests: list[Any]
    into: Sequence[Any]
    question: Any


class Peers:
    """The other ranks of a communicator, who ask and are asked; `close` is collective.

    answer(rank, kind, payload) returns the buffers that are sent back, a message each. An exception in it is sent
    to the asking rank.
    """

    def __init__(self, comm: Any, answer: Answer, patience: float = PATIENCE) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise StoreError(
                "This MPI was not started with MPI_THREAD_MULTIPLE, which a store needs."
            )
        self.comm = comm.Dup()
        self.rank, self.size, self.patience = comm.rank, comm.size, patience
        self._answer, self._pid = answer, os.getpid()
        self._engine, self._counter = threading.Lock(), threading.Lock()
        self._next, self._read, self._awake = 0, 0.0, _AWAKE
        self._sending: list[tuple[list[Any], Any]] = []  # messages and their subjects
        self._inbox = bytearray(1 << 16)
        self._status = MPI.Status()
        self._dropped: list[Ticket] = []  # MPI will still write to their buffers
        self._closed: set[int] = set()
        self._left: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="dlhpc-store", daemon=True)
        self._thread.start()

    def ask(
        self, rank: int, kind: int, payload: Any, into: Sequence[Any], about: Callable[[], str]
    ) -> Ticket:
        """Send a question; its answer will fill the buffers `into`, a message each. `about` is for errors."""
        if self._forked():
            raise StoreError(f"{about()}: {_FORKED.format(rank=rank)}")
        self._read = time.monotonic()
        with self._counter:
            self._next = (self._next + 2) % (1 << 20)
            tag = self._next + 3
        byte = self._mpi.BYTE
        requests = [self.comm.Irecv([buffer, byte], rank, tag) for buffer in into]
        question = np.array([kind, tag], np.int64).tobytes() + payload
        requests.append(self.comm.Isend([question, byte], rank, _QUESTION))
        return Ticket(rank, about, tag, requests, into, question)

    def wait(self, tickets: Sequence[Ticket]) -> None:
        """Wait for all these answers; serve others meanwhile. Raises StoreError naming a rank that timed out."""
        if tickets and self._forked():
            raise StoreError(f"{tickets[0].about()}: {_FORKED.format(rank=tickets[0].rank)}")
        self.poll()
        deadline = time.monotonic() + self.patience
        for ticket in tickets:
            deadline = self._wait(ticket, deadline)
        self._read = time.monotonic()

    def drop(self, ticket: Ticket) -> None:
        """Abandon an answer in flight. Its buffer is retained: it arrives before the store closes."""
        if not self._forked():  # the answer is its parent's
            self._dropped.append(ticket)

    def close(self) -> Any:
        """Answer until every rank has called this, then stop and return the communicator, which the caller frees.

        Raises RankLost for a rank that neither calls nor answers.
        """
        others = set(range(self.size)) - {self.rank}
        replies = [self.ask(rank, CLOSE, b"", [], _closing) for rank in others]
        since, sleep = time.monotonic(), _SLEEP
        while others - self._closed:
            for rank in self._left:
                self._stop.set()
                _KEPT.extend(self._dropped)
                raise RankLost(f"Rank {rank} left the store before it was closed.", rank)
            if self.poll():
                sleep = _SLEEP
            else:  # whoever still reads may need this core
                time.sleep(sleep)
                sleep = min(1.1 * sleep, _LONGEST)
            if time.monotonic() - since > self.patience / 2:  # still computing, or lost?
                since = time.monotonic()
                for rank in others - self._closed:
                    replies.append(self.ask(rank, PING, b"", [bytearray(1)], _closing))
                    self.wait(replies[-1:])
        self._receive_dropped()
        barrier = self.comm.Ibarrier()
        while not barrier.Test():
            if not self.poll():
                _yield()
        until = time.monotonic() + _AFTER
        while self.poll() or (self._sending and time.monotonic() < until):
            _yield()
        self.wait(replies)
        self._stop.set()
        self._thread.join()
        return self.comm

    def leave(self) -> None:
        """Leave without waiting, after an error: later requests to this rank raise."""
        self._stop.set()
        self._thread.join()
        _KEPT.extend(self._dropped)
        for rank in range(self.size):
            if rank != self.rank:
                self.ask(rank, LEAVE, b"", [], _closing)

    def poll(self) -> bool:
        """Answer pending questions; return whether there were any."""
        if not self._engine.acquire(blocking=False):
            return False
        try:
            busy = False
            while self.comm.Iprobe(self._mpi.ANY_SOURCE, _QUESTION, self._status):
                self._handle(self._status.Get_source(), self._status.Get_count(self._mpi.BYTE))
                busy = True
            return self._collect() or busy
        finally:
            self._engine.release()

    def _receive_dropped(self) -> None:
        """Drain abandoned answers: their memory and tags are reused later."""
        requests = [request for ticket in self._dropped for request in ticket.requests]
        until = time.monotonic() + self.patience
        while not self._mpi.Request.Testall(requests) and time.monotonic() < until:
            if not self.poll():
                _yield()
            for ticket in self._dropped:
                self._error(ticket)

    def _forked(self) -> bool:
        return os.getpid() != self._pid

    def _serve(self) -> None:
        """Answer, as a thread, until the store closes."""
        last, sleep = -_ALERT, _SLEEP
        while not self._stop.is_set():
            now = time.monotonic()
            if now - self._read < _READS:  # a reader answers; two would contend for the GIL
                time.sleep(_READS / 2)
            elif self.poll():
                last, sleep = now, _SLEEP
            elif now - last < (_ALERT if self._sending else self._awake):
                _yield()
            else:
                time.sleep(sleep)
                alert = self._sending or now - last < _ALERT
                sleep = _SLEEP if alert else min(1.5 * sleep, _LONGEST)

    def _wait(self, ticket: Ticket, deadline: float) -> float:
        """Wait for an answer; return the deadline, later by the time in which this rank itself was stopped."""
        statuses = [self._mpi.Status() for _ in ticket.requests]
        since = last = time.monotonic()
        while not self._mpi.Request.Testall(ticket.requests, statuses):
            if self.poll():
                continue
            self._read = now = time.monotonic()
            if now - since < _SPIN:
                _yield()
            else:  # the rank that was asked may need this core
                time.sleep(_SLEEP)
                before, last = last, time.monotonic()
                deadline += last - before if last - before > _STOPPED else 0
                self._check(ticket, deadline)
        for status, buffer in zip(statuses, ticket.into, strict=False):
            count = status.Get_count(self._mpi.BYTE)
            if count != len(buffer):
                self._refuse(ticket, f"{count} B arrived, not {len(buffer)} B")
        return deadline

    def _check(self, ticket: Ticket, deadline: float) -> None:
        """Raise the error in the answer, or the timeout."""
        text = self._error(ticket)
        if text is not None:
            self._refuse(ticket, text)
        left = ticket.rank in self._left
        if left or time.monotonic() > deadline:
            self.drop(ticket)
            why = "has left the store" if left else f"did not answer within {self.patience:g} s"
            raise RankLost(f"Rank {ticket.rank} {why}: {ticket.about()}.", ticket.rank)

    def _error(self, ticket: Ticket) -> str | None:
        """Return the answering rank's error message, if any; then no answer follows."""
        if not self.comm.Iprobe(ticket.rank, ticket.tag + 1):
            return None
        text = self.comm.recv(source=ticket.rank, tag=ticket.tag + 1)
        for request in ticket.requests:
            if request:
                request.Cancel()
        return str(text)

    def _refuse(self, ticket: Ticket, text: str) -> None:
        self.drop(ticket)
        raise StoreError(f"Rank {ticket.rank} could not answer: {ticket.about()}: {text}.")

    def _handle(self, rank: int, size: int) -> None:
        if size > len(self._inbox):
            self._inbox = bytearray(2 * size)
        message = memoryview(self._inbox)[:size]
        self.comm.Recv([message, self._mpi.BYTE], rank, _QUESTION)
        kind, tag = message[:_HEAD].cast("q")
        if kind in (CLOSE, LEAVE):
            (self._closed if kind == CLOSE else self._left).add(rank)
            return
        try:
            buffers = [b"\1"] if kind == PING else self._answer(rank, kind, message[_HEAD:])
        except Exception as error:  # any error is sent to the asking rank
            self._sending.append(([self.comm.isend(str(error), rank, tag + 1)], None))
            return
        byte = self._mpi.BYTE
        requests = [self.comm.Isend([buffer, byte], rank, tag) for buffer in buffers]
        self._awake = min(_AWAKE + sum(map(len, buffers)) / _CHECKS, _ALERT)
        self._sending.append((requests, buffers))

    def _collect(self) -> bool:
        """Release completed sends; return whether there were any."""
        done, before = self._mpi.Request.Testall, len(self._sending)
        if before:
            self._sending = [sending for sending in self._sending if not done(sending[0])]
        return len(self._sending) < before


def pieces(buffer: memoryview) -> list[memoryview]:
    """Return the messages that a buffer is sent as."""
    return [buffer[start : start + PIECE] for start in range(0, len(buffer), PIECE)]


def _closing() -> str:
    return "closing the store"
