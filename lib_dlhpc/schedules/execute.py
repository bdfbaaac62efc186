"""Execution of a schedule over MPI, in place on a numpy buffer.

It needs only a communicator (mpi4py's, or one with the same methods); this file does not import MPI.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules.rounds import Round, Schedule

Buffer = NDArray[Any]
Combine = Callable[..., Any]  # op(one, other, out=one), such as np.add
TAG = 11


def execute(schedule: Schedule, comm: Any, buffer: Buffer, op: Combine = np.add) -> None:
    """Execute `schedule` in place on `buffer`; a collective call on `comm`.

    comm: an mpi4py communicator of schedule.ranks ranks. buffer: one-dimensional, contiguous, of
    schedule.elements numbers of any dtype. op: np.add, np.maximum ...: op(one, other, out=one).
    The schedule defines the order of additions, so floating-point sums of two algorithms may differ in the
    last bits. Raises SpecError for inconsistent sizes, before any message.
    """
    with prepared(schedule, comm, buffer, op) as run:
        run()


@contextmanager
def prepared(
    schedule: Schedule, comm: Any, buffer: Buffer, op: Combine = np.add
) -> Iterator["Prepared"]:
    """Yield a `Prepared` that executes `schedule` on `buffer` each time it is called.

    Persistent requests are created once and freed at the end of the `with` block; use this to run
    the same schedule many times. Arguments and errors are those of `execute`.
    """
    _check(schedule, comm, buffer)
    mine = [_of_rank(part, comm.rank) for part in schedule.rounds()]
    scratch = max((step.scratch for step in mine), default=0)
    received = np.empty(scratch, buffer.dtype)
    steps: list[_Ready] = []
    try:
        for step in mine:
            requests: list[Any] = []
            steps.append(_Ready(requests, []))
            steps[-1].arrivals.extend(_set_up(step, comm, buffer, received, requests))
        yield Prepared(steps, op)
    finally:
        for ready in steps:
            for request in ready.requests:
                request.Free()


class _Ready(NamedTuple):
    """One rank's part of a round: requests, and (place, received, reduce) to apply after they complete."""

    requests: list[Any]
    arrivals: list[tuple[Buffer, Buffer, bool]]


class Prepared:
    """A schedule with persistent requests: call it, or `start` it and overlap other work while `test` progresses it."""

    def __init__(self, steps: list[_Ready], op: Combine) -> None:
        self._steps, self._op = steps, op
        self._left: Iterator[_Ready] = iter(())
        self._now: _Ready | None = None

    def __call__(self) -> None:
        """Execute all rounds."""
        self.start()
        self.wait()

    def start(self) -> None:
        """Post the first round and return."""
        self._left = iter(self._steps)
        self._next()

    def test(self) -> bool:
        """Progress as far as messages have arrived; return whether all rounds are complete."""
        while self._now is not None:
            requests = self._now.requests
            if requests and not requests[0].Testall(requests):
                return False
            self._combine()
        return True

    def wait(self) -> None:
        """Complete all remaining rounds."""
        while self._now is not None:
            requests = self._now.requests
            if requests:
                requests[0].Waitall(requests)
            self._combine()

    def _combine(self) -> None:
        assert self._now is not None
        for place, arrived, reduce in self._now.arrivals:
            if reduce:
                self._op(place, arrived, out=place)
            else:
                place[:] = arrived
        self._next()

    def _next(self) -> None:
        self._now = next(self._left, None)
        if self._now is not None and self._now.requests:
            self._now.requests[0].Startall(self._now.requests)


class _Step(NamedTuple):
    """One rank's part of a round: sends as (peer, start, stop); receives also with reduce and direct."""

    sends: list[tuple[int, int, int]]
    receives: list[tuple[int, int, int, bool, bool]]  # ..., reduce, direct into the buffer
    scratch: int  # elements of the receive buffer


def _of_rank(part: Round, rank: int) -> _Step:
    out, into = part.source == rank, part.target == rank
    start, stop = part.offset, part.offset + part.count
    sends = list(
        zip(part.target[out].tolist(), start[out].tolist(), stop[out].tolist(), strict=True)
    )
    receives, scratch = [], 0
    for source, a, b, reduce in zip(
        *(array[into].tolist() for array in (part.source, start, stop, part.reduce)), strict=True
    ):
        # A copy onto data still being sent must go through the receive buffer.
        direct = not reduce and all(b <= first or last <= a for _, first, last in sends)
        scratch += 0 if direct else b - a
        receives.append((source, a, b, reduce, direct))
    return _Step(sends, receives, scratch)


def _set_up(
    step: _Step, comm: Any, buffer: Buffer, received: Buffer, requests: list[Any]
) -> Iterator[tuple[Buffer, Buffer, bool]]:
    """Append to `requests`, receives first; yield the local operations after completion."""
    used = 0
    for source, start, stop, reduce, direct in step.receives:
        place = buffer[start:stop]
        if not direct:
            arrived = received[used : used + stop - start]
            used += stop - start
            yield place, arrived, reduce
            place = arrived
        requests.append(comm.Recv_init(_bytes(place), source, TAG))
    for target, start, stop in step.sends:
        requests.append(comm.Send_init(_bytes(buffer[start:stop]), target, TAG))


def _bytes(part: Buffer) -> Buffer:
    """View the memory as bytes: messages do not depend on the dtype."""
    return part.view(np.uint8)


def _check(schedule: Schedule, comm: Any, buffer: Any) -> None:
    if comm.size != schedule.ranks:
        raise SpecError(
            f"The schedule is for {schedule.ranks} ranks; the communicator has {comm.size}."
        )
    if not isinstance(buffer, np.ndarray) or buffer.ndim != 1 or not buffer.flags.c_contiguous:
        raise SpecError("buffer: expected a contiguous numpy array of one dimension.")
    if buffer.size != schedule.elements:
        raise SpecError(f"buffer: {buffer.size} elements; the schedule is for {schedule.elements}.")
    if not buffer.flags.writeable or buffer.dtype.hasobject:
        raise SpecError("buffer: expected a writable array of numbers.")
