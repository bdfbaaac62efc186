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
from lib_dlhpc.costs.wire_format import wire_format
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.schedules import prepared
from lib_dlhpc.schedules.choice import plan
from lib_dlhpc.schedules.network import Network
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.training.ordered_collectives import DeferredCollective, InOrder, Request
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.sharding import Sharding
from lib_dlhpc.training.weights import Parameter
from lib_dlhpc.training.wire_formats import FORMATS, Format


class Exchange:
    """Sums of the buckets of one array over the ranks: post them as they are filled, then finish."""

    def __init__(
        self,
        gradients: Array,
        bounds: list[tuple[int, int]],
        reductions: Sequence[Request],
        wire: Array,
        recorder: Recorder,
        form: Format | None = None,
    ) -> None:
        """wire: what is reduced: the gradients, or room for a bucket in another format, `form`."""
        self.gradients, self.bounds, self.reductions = gradients, bounds, reductions
        self.wire, self.recorder, self.form = wire, recorder, form
        self.first_bucket = 1  # its number in the timeline, if a rank has several exchanges
        self._stream = InOrder()
        self.scaling: Scaling | None = None  # of formats with few magnitudes
        self.several = 1  # sums of each bucket

    def begin(self, epoch: float) -> None:
        """Begin a step; epoch: as a fraction."""

    def post(self, number: int) -> None:
        """Bucket `number` is filled: start it when those before it are done."""
        if self.scaling is not None:
            ends = (partial(self._search, number), partial(self._found, number))
            self._stream.post(self.scaling.reductions[number], *ends)
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
        self.recorder.begin(self._name(number), size)
        if self.form is not None:
            values = self.gradients[first:last]
            if self.scaling is not None:
                values = values * values.dtype.type(self.scaling.factor(number))
            self.wire[: last - first] = self.form.encode(values)

    def _end(self, number: int) -> None:
        first, last = self.bounds[number]
        if self.form is not None:
            self.gradients[first:last] = self.form.decode(self.wire[: last - first])
            if self.scaling is not None:
                self.gradients[first:last] /= self.gradients.dtype.type(self.scaling.factor(number))
        self.recorder.end(self._name(number))

    def _name(self, number: int) -> str:
        return f"bucket {self.first_bucket + number // self.several}"

    def _search(self, number: int) -> None:
        assert self.scaling is not None
        (first, last), name = self.bounds[number], f"scale bucket {self.first_bucket + number}"
        largest = self.scaling.largest[number : number + 1]
        self.recorder.begin(name, largest.nbytes)
        largest[:] = np.abs(self.gradients[first:last]).max(initial=0.0)

    def _found(self, number: int) -> None:
        self.recorder.end(f"scale bucket {self.first_bucket + number}")


class Scaling:
    """The largest magnitude of each bucket on any rank, by an allreduce before that of the bucket."""

    def __init__(self, form: Format, buckets: int, comm: Any) -> None:
        from mpi4py import MPI

        self.form, self.ranks, self.largest = form, comm.size, np.zeros(buckets, np.float32)
        parts = (self.largest[number : number + 1] for number in range(buckets))
        self.reductions = [
            _Library(partial(comm.Iallreduce, MPI.IN_PLACE, part, MPI.MAX)) for part in parts
        ]

    def factor(self, number: int) -> float:
        """Return by what a bucket is multiplied on the wire."""
        return self.form.scale(float(self.largest[number]), self.ranks)


@contextmanager
def exchange_of(
    experiment: Experiment,
    gradients: Array,
    comm: Any,
    recorder: Recorder,
    bounds: list[tuple[int, int]],
) -> Iterator[Exchange]:
    """Yield the allreduces of an experiment's buckets; their messages are set up once and freed at the end.

    In the format of the wire gradients are sent and added, one bucket at a time (wire_formats.py).
    """
    form = format_of(experiment, gradients.dtype)
    largest = max((last - first for first, last in bounds), default=0)
    wire = np.empty(largest, form.dtype) if form else gradients
    with ExitStack() as stack:
        net, reductions = groups.group_network(experiment, "data"), []
        for first, last in bounds:
            part = wire[: last - first] if form else wire[first:last]
            reductions.append(stack.enter_context(reduction(experiment, comm, net, part, form)))
        exchange = Exchange(gradients, bounds, reductions, wire, recorder, form)
        if form is not None and form.most and bounds:
            exchange.scaling = Scaling(form, len(bounds), comm)
        yield exchange


def scattering(
    sharding: Sharding,
    comms: Sequence[Any],
    flat: Array,
    bounds: list[tuple[int, int]],
    recorder: Recorder,
) -> Exchange:
    """Return the reduce-scatters of each bucket over the groups that own parts of it, in place."""
    shares = [(*bound, comm) for bound in bounds for comm in comms]
    parts = [
        DeferredCollective(partial(sharding.reduce_scatter, flat[start:stop], start, comm))
        for start, stop, comm in shares
    ]
    sizes = [(0, sharding.elements(*share)) for share in shares]
    exchange = Exchange(flat, sizes, parts, flat, recorder)
    exchange.several = len(comms)
    return exchange


def format_of(experiment: Experiment, kind: Any) -> Format | None:
    """Return the format of the wire if it is another than numbers of type `kind` have; weights are sent as they are."""
    strategy = experiment.strategy
    form = FORMATS.get(wire_format(strategy))  # numpy has no tf32
    if strategy.update != "synchronous" or form is None or form.dtype == kind:
        return None
    return form


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
    return [range_of(parameters, layer, layer + 1) for layer in layers]


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
def reduction(
    experiment: Experiment, comm: Any, net: Network, part: Array, form: Format | None = None
) -> Iterator[Request]:
    """Yield the allreduce of a contiguous part, ready to be started; net: of the ranks of `comm`."""
    name, add = experiment.strategy.allreduce, form.add if form else np.add
    if experiment.training.collective == "mpi":
        from mpi4py import MPI

        if form is None or part.itemsize > 2:
            yield _Library(lambda: comm.Iallreduce(MPI.IN_PLACE, part, MPI.SUM))
            return
        # MPI has no small float types: it moves bytes, numpy adds them.
        combine, number = (
            MPI.Op.Create(partial(_add_bytes, form), commute=True),
            MPI.BYTE.Create_contiguous(part.itemsize).Commit(),
        )
        try:
            yield _Library(
                lambda: comm.Iallreduce(MPI.IN_PLACE, [part, part.size, number], combine)
            )
        finally:
            combine.Free()
            number.Free()
        return
    chosen = plan("allreduce", float(part.nbytes), net, comm.size, part.size, name)
    with prepared(chosen, comm, part, add) as run:
        yield run


def _add_bytes(form: Format, first: Any, other: Any, _: Any) -> None:
    total = np.frombuffer(other, form.dtype)
    form.add(total, np.frombuffer(first, form.dtype), out=total)
