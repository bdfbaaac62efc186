"""Gradient allreduce, bucket by bucket, overlapped with backward.

A bucket is launched when backward has filled it (Li et al. 2020, "PyTorch Distributed", section 3.2). Buckets are
reduced in the order in which they are filled, one at a time, by a schedule of schedules/ or by the MPI library's
allreduce. Ranks progress messages in flight each time a bucket is filled.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from lib_dlhpc.costs import groups
from lib_dlhpc.costs.buckets import buckets
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.schedules import prepared
from lib_dlhpc.schedules.choice import plan
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.weights import Parameter


class Reduction(Protocol):
    """A persistent allreduce of one bucket."""

    def start(self) -> None:
        """Start without blocking."""

    def test(self) -> bool:
        """Make progress; return whether it is complete."""

    def wait(self) -> None:
        """Wait for completion."""


class Exchange:
    """Gradient synchronization of one step: release during backward, then finish."""

    def __init__(
        self,
        gradients: Array,
        bounds: list[tuple[int, int]],
        reductions: list[Reduction],
        wire: Array,
        overlap: bool,
        recorder: Recorder,
    ) -> None:
        self.gradients, self.bounds, self.reductions = gradients, bounds, reductions
        self.wire, self.overlap, self.recorder = wire, overlap, recorder
        self.sent = 0  # B that this rank has sent so far
        self.epoch = 0.0  # of the step; set before backward
        self.first_bucket = 0  # its number in the timeline, if a rank has several exchanges
        # Filled buckets; the first is in flight.
        self._filled: deque[int] = deque()
        self._next = 0

    def release(self, start: int) -> None:
        """gradients[start:] is complete: launch its buckets and progress those in flight."""
        while self._next < len(self.bounds) and self.bounds[self._next][0] >= start:
            self._filled.append(self._next)
            self._next += 1
            if self.overlap and len(self._filled) == 1:
                self._begin()
        if self.overlap:
            while self._filled and self.reductions[self._filled[0]].test():
                self._end()

    def finish(self) -> None:
        """Wait for all buckets; then the next step may begin."""
        if self._filled and not self.overlap:
            self._begin()
        while self._filled:
            self.reductions[self._filled[0]].wait()
            self._end()
        self._next = 0

    def _begin(self) -> None:
        number = self._filled[0]
        first, last = self.bounds[number]
        size = (last - first) * self.wire.itemsize
        self.sent += size
        self.recorder.begin_bucket(self.first_bucket + number, size)
        if self.wire is not self.gradients:
            self.wire[first:last] = self.gradients[first:last]
        self.reductions[number].start()

    def _end(self) -> None:
        number = self._filled.popleft()
        first, last = self.bounds[number]
        if self.wire is not self.gradients:
            self.gradients[first:last] = self.wire[first:last]
        self.recorder.end_bucket(self.first_bucket + number)
        if self._filled:
            self._begin()


@contextmanager
def exchange_of(
    experiment: Experiment,
    gradients: Array,
    comm: Any,
    recorder: Recorder,
    bounds: list[tuple[int, int]] | None = None,
) -> Iterator[Exchange]:
    """Yield the Exchange of an experiment; its messages are set up once and freed at the end.

    With 16-bit precision gradients are sent and summed in 2 bytes each. bounds: of the buckets, if the gradients
    are not those of the whole model.
    """
    half = experiment.strategy.precision in ("fp16", "bf16")
    wire = np.empty(gradients.size, np.float16) if half else gradients
    served = experiment.strategy.update == "asynchronous"  # gradients go to servers instead
    if bounds is None:
        bounds = [] if served else bucket_bounds(experiment, wire.itemsize)
    with ExitStack() as stack:
        reductions = [
            stack.enter_context(_reduction(experiment, comm, wire[first:last]))
            for first, last in (bounds if comm.size > 1 else [])
        ]
        if comm.size == 1:
            reductions = [_SingleRank() for _ in bounds]
        overlap = bool(experiment.strategy.overlap)
        yield Exchange(gradients, bounds, reductions, wire, overlap, recorder)


def bucket_bounds(experiment: Experiment, element: int) -> list[tuple[int, int]]:
    """Return (first, one past last) of each bucket in the flat gradients, in the order they are filled."""
    cut = buckets(experiment.model, float(experiment.strategy.bucket), element)
    sizes = np.round(cut.sizes / element).astype(int)
    ends = sizes.sum() - np.concatenate([[0], np.cumsum(sizes)])
    return [(int(a), int(b)) for b, a in pairwise(ends) if b > a]


def bounds_of(parameters: list[Parameter], elements: float) -> list[tuple[int, int]]:
    """Return the bounds of buckets of at least `elements` elements, last layer first."""
    found, stop = [], parameters[-1].stop if parameters else 0
    for place in reversed(range(len(parameters))):
        start = parameters[place].start
        whole_layer = place == 0 or parameters[place - 1].layer != parameters[place].layer
        if whole_layer and stop > start and (stop - start >= elements or place == 0):
            found.append((start, stop))
            stop = start
    return found


class _SingleRank:
    """The allreduce of a single rank: nothing to do."""

    def start(self) -> None:
        pass

    def test(self) -> bool:
        return True

    def wait(self) -> None:
        pass


class _Library:
    """MPI_Iallreduce."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start

    def start(self) -> None:
        self._request = self._start()

    def test(self) -> bool:
        return bool(self._request.Test())

    def wait(self) -> None:
        self._request.Wait()


@contextmanager
def _reduction(experiment: Experiment, comm: Any, part: Array) -> Iterator[Reduction]:
    name = experiment.strategy.allreduce
    if experiment.training.collective == "mpi":
        from mpi4py import MPI

        if part.dtype != np.float16:
            yield _Library(lambda: comm.Iallreduce(MPI.IN_PLACE, part, MPI.SUM))
            return
        # MPI has no 16-bit float type: it moves bytes, numpy adds them.
        add, number = (
            MPI.Op.Create(_add_halves, commute=True),
            MPI.BYTE.Create_contiguous(2).Commit(),
        )
        try:
            yield _Library(lambda: comm.Iallreduce(MPI.IN_PLACE, [part, part.size, number], add))
        finally:
            add.Free()
            number.Free()
        return
    net = groups.group_network(experiment, "data")
    chosen = plan("allreduce", float(part.nbytes), net, comm.size, part.size, name)
    with prepared(chosen, comm, part) as run:
        yield run


def _add_halves(one: Any, other: Any, _: Any) -> None:
    total = np.frombuffer(other, np.float16)
    total += np.frombuffer(one, np.float16)
