"""Execution of a schedule with MPI, on a numpy buffer, in place.

Only a communicator is needed (mpi4py's, or anything with the same methods); this file imports no MPI.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.schedules.rounds import Round, Schedule
from lib_dlhpc.spec.errors import SpecError

Buffer = NDArray[Any]
Combine = Callable[..., Any]  # op(one, other, out=one), such as np.add
TAG = 11


def execute(schedule: Schedule, comm: Any, buffer: Buffer, op: Combine = np.add) -> None:
    """Carry out `schedule` on `buffer`, in place; every rank of `comm` calls this.

    comm: an mpi4py communicator of schedule.ranks ranks. buffer: one-dimensional, contiguous, of
    schedule.elements numbers of any dtype. op: np.add, np.maximum ...: op(one, other, out=one).
    The order of additions is the schedule's, so floating-point sums may differ in the last bits from
    another algorithm's. Raises SpecError if sizes do not fit, before anything is sent.
    """
    with prepared(schedule, comm, buffer, op) as run:
        run()


@contextmanager
def prepared(
    schedule: Schedule, comm: Any, buffer: Buffer, op: Combine = np.add
) -> Iterator["Prepared"]:
    """Give a `Prepared` that carries out `schedule` on `buffer` each time it is called.

    Messages are set up once, as persistent requests, and freed at the end of the `with` block; use
    this to run the same schedule many times. Arguments and errors are those of `execute`.
    """
    _check(schedule, comm, buffer)
    mine = [_of_rank(part, comm.rank) for part in schedule.rounds()]
    room = max((step.room for step in mine), default=0)
    received = np.empty(room, buffer.dtype)
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
    """One rank's part of a round, set up: requests, and (place, what arrived, reduce) to do after them."""

    requests: list[Any]
    arrivals: list[tuple[Buffer, Buffer, bool]]


class Prepared:
    """A schedule that is set up: call it, or `start` it and do other work while `test` carries it on."""

    def __init__(self, steps: list[_Ready], op: Combine) -> None:
        self._steps, self._op = steps, op
        self._left: Iterator[_Ready] = iter(())
        self._now: _Ready | None = None

    def __call__(self) -> None:
        """Carry out all rounds."""
        self.start()
        self.wait()

    def start(self) -> None:
        """Send the messages of the first round and return."""
        self._left = iter(self._steps)
        self._next()

    def test(self) -> bool:
        """Carry on as far as messages have arrived; return whether all is done."""
        while self._now is not None:
            requests = self._now.requests
            if requests and not requests[0].Testall(requests):
                return False
            self._combine()
        return True

    def wait(self) -> None:
        """Carry out what is left."""
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
    """One rank's part of a round: (peer, start, stop) of what it sends; the same and how for what it receives."""

    sends: list[tuple[int, int, int]]
    receives: list[tuple[int, int, int, bool, bool]]  # ..., reduce, straight into the buffer
    room: int  # elements of the receive buffer that it needs


def _of_rank(part: Round, rank: int) -> _Step:
    out, into = part.source == rank, part.target == rank
    start, stop = part.offset, part.offset + part.count
    sends = list(
        zip(part.target[out].tolist(), start[out].tolist(), stop[out].tolist(), strict=True)
    )
    receives, room = [], 0
    for source, a, b, reduce in zip(
        *(array[into].tolist() for array in (part.source, start, stop, part.reduce)), strict=True
    ):
        # What is still being sent must stay as it was, so then even a copy takes the other way.
        straight = not reduce and all(b <= first or last <= a for _, first, last in sends)
        room += 0 if straight else b - a
        receives.append((source, a, b, reduce, straight))
    return _Step(sends, receives, room)


def _set_up(
    step: _Step, comm: Any, buffer: Buffer, received: Buffer, requests: list[Any]
) -> Iterator[tuple[Buffer, Buffer, bool]]:
    """Fill `requests`, receives first; yield what is left to do once all have arrived."""
    used = 0
    for source, start, stop, reduce, straight in step.receives:
        place = buffer[start:stop]
        if not straight:
            arrived = received[used : used + stop - start]
            used += stop - start
            yield place, arrived, reduce
            place = arrived
        requests.append(comm.Recv_init(_bytes(place), source, TAG))
    for target, start, stop in step.sends:
        requests.append(comm.Send_init(_bytes(buffer[start:stop]), target, TAG))


def _bytes(part: Buffer) -> Buffer:
    """The same memory as bytes: messages need not know the dtype."""
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
        raise SpecError("buffer: expected numbers in memory that may be written to.")
