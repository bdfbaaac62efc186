"""Sums of gradients or weights over the replicas, bucket by bucket, overlapped with backward.

A bucket is launched when backward has filled it (Li et al. 2020, "PyTorch Distributed", section 3.2). Buckets are
reduced in the order in which they are posted, one at a time, by a schedule of schedules/ or by the MPI library's
allreduce. Ranks progress messages in flight after each layer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from lib_dlhpc.costs import groups
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.schedules import prepared
from lib_dlhpc.schedules.choice import plan
from lib_dlhpc.schedules.network import Network
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.in_order import InOrder, Request
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.weights import Parameter


class Exchange:
    """Sums of the buckets of one array over the ranks: post them as they are filled, then finish."""

    def __init__(
        self,
        gradients: Array,
        bounds: list[tuple[int, int]],
        reductions: Sequence[Request],
        wire: Array,
        recorder: Recorder,
    ) -> None:
        self.gradients, self.bounds, self.reductions = gradients, bounds, reductions
        self.wire, self.recorder = wire, recorder
        self.first_bucket = 1  # its number in the timeline, if a rank has several exchanges
        self._stream = InOrder()

    def begin(self, epoch: float) -> None:
        """Begin a step; epoch: as a fraction."""

    def post(self, number: int) -> None:
        """Bucket `number` is filled: start it when those before it are done."""
        ends = (partial(self._begin, number), partial(self._end, number))
        self._stream.post(self.reductions[number], *ends)

    def progress(self) -> None:
        """Progress what is in flight."""
        self._stream.test()

    def finish(self) -> None:
        """Wait for all buckets; then the next step may begin."""
        self._stream.wait()

    def _begin(self, number: int) -> None:
        first, last = self.bounds[number]
        size = (last - first) * self.wire.itemsize
        self.recorder.begin(f"bucket {self.first_bucket + number}", size)
        if self.wire is not self.gradients:
            self.wire[first:last] = self.gradients[first:last]

    def _end(self, number: int) -> None:
        first, last = self.bounds[number]
        if self.wire is not self.gradients:
            self.gradients[first:last] = self.wire[first:last]
        self.recorder.end(f"bucket {self.first_bucket + number}")


@contextmanager
def exchange_of(
    experiment: Experiment,
    gradients: Array,
    comm: Any,
    recorder: Recorder,
    bounds: list[tuple[int, int]],
) -> Iterator[Exchange]:
    """Yield the allreduces of an experiment's buckets; their messages are set up once and freed at the end.

    With 16-bit precision gradients are sent and summed in 2 bytes each.
    """
    strategy = experiment.strategy
    half = strategy.precision == "fp16" and strategy.update == "synchronous"
    wire = np.empty(gradients.size, np.float16) if half else gradients
    with ExitStack() as stack:
        net = groups.group_network(experiment, "data")
        reductions = [
            stack.enter_context(reduction(experiment, comm, net, wire[first:last]))
            for first, last in bounds
        ]
        yield Exchange(gradients, bounds, reductions, wire, recorder)


def start_of(parameters: list[Parameter], layer: int) -> int:
    """Return where the parameters of a layer begin in the flat array, or those of the next that has any."""
    end = parameters[-1].stop if parameters else 0
    return next((p.start for p in parameters if p.layer >= layer), end)


def range_of(parameters: list[Parameter], first: int, stop: int) -> tuple[int, int]:
    """Return where the parameters of layers first, ..., stop - 1 are in the flat array."""
    return start_of(parameters, first), start_of(parameters, stop)


def bounds_of(parameters: list[Parameter]) -> list[tuple[int, int]]:
    """Return the bounds of the parameters of each layer that has any, the last first."""
    layers = sorted({p.layer for p in parameters if p.stop > p.start}, reverse=True)
    return [range_of(parameters, each, each + 1) for each in layers]


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
def reduction(experiment: Experiment, comm: Any, net: Network, part: Array) -> Iterator[Request]:
    """Yield the allreduce of a contiguous part, ready to be started; net: of the ranks of `comm`."""
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
    chosen = plan("allreduce", float(part.nbytes), net, comm.size, part.size, name)
    with prepared(chosen, comm, part) as run:
        yield run


def _add_halves(one: Any, other: Any, _: Any) -> None:
    total = np.frombuffer(other, np.float16)
    total += np.frombuffer(one, np.float16)
