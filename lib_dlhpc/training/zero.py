"""ZeRO: replicas shard the state that data parallelism replicates (Rajbhandari et al. 2020, sections 5.1 to 5.3).

A network's flat array is cut into units, and each replica updates its part of every unit:

    1   optimizer state   gradients are reduce-scattered, updated weights all-gathered
    2   gradients too     a bucket of gradients is reduce-scattered as soon as it is filled, and freed
    3   weights too       a layer's weights are all-gathered just before use and freed afterwards

A unit is what one collective moves, so that all replicas send the same amount: a bucket, or at level 3 a layer.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.arena import Arena
from lib_dlhpc.layers.base.saved import Array, Tensors
from lib_dlhpc.schedules.ring_collectives import Rounds
from lib_dlhpc.training.exchange import bounds_of
from lib_dlhpc.training.in_order import InOrder, Later
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.sharding import Range, Sharding
from lib_dlhpc.training.weights import Parameter, Table


class Shards:
    """The weight storage of ZeRO levels 2 and 3: gradients are sharded, at level 3 weights as well.

    buckets: makes ranges of whole layers of the parameters, the last first.
    """

    def __init__(
        self,
        table: Table,
        dtype: Any,
        arena: Arena,
        level: int,
        comm: Any,
        buckets: Callable[[list[Parameter]], list[Range]],
        recorder: Recorder,
    ) -> None:
        self.table, self.dtype, self.level = table, np.dtype(dtype), level
        self.recorder, self.arena = recorder, arena
        self.buckets = buckets(table.parameters)
        layers = bounds_of(table.parameters)
        self.sharding = Sharding(self.buckets if level == 2 else layers, comm)
        self.whole = np.zeros(table.size if level == 2 else 0, dtype)
        self.weights = np.zeros(self.sharding.size if level == 3 else 0, dtype)  # of the shard
        self.gradients = np.zeros(self.sharding.size, dtype)
        self._views = table.views(self.whole) if level == 2 else []
        self._gathers = InOrder()
        self._here: dict[int, dict[Range, tuple[int, Array]]] = {}  # units, by layer
        self._filling: dict[int, Tensors] = {}
        self.first_bucket = 0  # its number in the timeline, if a rank has several stages
        self._wanted: int | None = None
        self._filled: dict[int, Array] = {}  # buckets by number
        self._sums = InOrder()  # of buckets

    def begin(self, passes: int) -> None:
        """Zero the gradients and drop gathered weights, which may be outdated."""
        self.gradients.fill(0)
        self.forget()

    def forget(self) -> None:
        """Free all gathered weights."""
        self._gathers.wait()
        self._here = {}

    def back(self, last: bool) -> None:
        """Do nothing: gradients are accumulated."""

    def take(self, index: int, then: int | None) -> Tensors:
        """Return a layer's weights, gathered since `fetch`."""
        if self.level == 2:
            return self._views[index]
        self.fetch(index)
        units = self._here[index]
        with self.recorder.communicates(f"weights {self._name(index)}", self._size(index)):
            for number, _ in units.values():
                self._gathers.wait(number)
        tensors = {}
        for name, p in self.table.of[index].items():
            unit = self.sharding.unit(p.start)
            part = slice(p.start - unit[0], p.stop - unit[0])
            tensors[name] = units[unit][1][part].reshape(p.shape)
        self._wanted = then
        return tensors

    def let_go(self, index: int) -> None:
        """Free the memory, unless the same layer is next."""
        if self.level == 3 and self._wanted != index:
            self._here.pop(index, None)

    def target(self, index: int) -> Tensors:
        """Return views of the bucket being filled."""
        return {name: self._part(p) for name, p in self.table.of[index].items()}

    def written(self, index: int) -> None:
        """Progress what is in flight."""
        self._sums.test()
        self._gathers.test()

    def views(self, start: int, stop: int) -> dict[str, Array]:
        """Return the gradients of the tensors in a bucket that is not sent yet."""
        inside = (p for p in self.table.parameters if start <= p.start < stop)
        return {p.name: self._part(p) for p in inside}

    def fill(self, index: int) -> Tensors:
        """Return arrays for a layer's weights."""
        if self.level == 2:
            return self._views[index]
        sees = self.table.of[index]
        self._filling[index] = {name: np.zeros(p.shape, self.dtype) for name, p in sees.items()}
        return self._filling[index]

    def filled(self, index: int) -> None:
        """Store the shard's part of the weights."""
        for name, tensor in self._filling.pop(index, {}).items():
            p = self.table.of[index][name]
            if p.layer == index:
                self.sharding.store(self.weights, p.start, tensor.reshape(-1))

    def finish(self) -> None:
        """Wait for the last reduce-scatter: the shard then has the sums over all replicas and passes."""
        if self._sums.busy:
            with self.recorder.communicates("a bucket", 0):
                self._sums.wait()

    def fetch(self, index: int) -> None:
        """Start to gather the weights that a layer sees, after those that are being gathered."""
        if index in self._here:
            return
        self._here[index] = {}
        for unit in sorted({self.sharding.unit(p.start) for p in self.table.of[index].values()}):
            rounds, flat = self.sharding.gathering(self.weights, *unit)
            self._here[index][unit] = self._gathers.post(Later(rounds)), flat

    def post(self, number: int) -> None:
        """Start the reduce-scatter of a bucket after the previous one, so that at most two are in memory."""
        self.finish()
        flat, bucket = self._filled.pop(number), self.first_bucket + number
        self._sums.post(
            Later(partial(self._sum, self.buckets[number], flat)),
            partial(self.recorder.begin_bucket, bucket, flat.nbytes),
            partial(self.recorder.end_bucket, bucket),
        )

    def _sum(self, bucket: Range, flat: Array) -> Rounds:
        """Reduce-scatter a bucket and add it to the shard's gradients."""
        yield from self.sharding.reduce_scatter(flat, bucket[0])
        for unit in self.sharding.within(*bucket):
            own = self.sharding.own(*unit)
            summed = flat[own.start - bucket[0] : own.stop - bucket[0]]
            self.gradients[self.sharding.mine(*unit)] += summed

    def _part(self, p: Parameter) -> Array:
        """Return the view for a tensor's gradients; those of tied weights start at zero."""
        number, (start, stop) = next(
            (n, each) for n, each in enumerate(self.buckets) if each[0] <= p.start < each[1]
        )
        if number not in self._filled:
            flat = self._filled[number] = self.arena.array((stop - start,), self.dtype)
            for each in self.table.adds:
                if start <= each.start < stop:
                    flat[each.start - start : each.stop - start] = 0
        return self._filled[number][p.start - start : p.stop - start].reshape(p.shape)

    def _size(self, index: int) -> int:
        """Return the B that this rank contributes to the all-gather."""
        return sum(flat.nbytes for _, flat in self._here[index].values()) // self.sharding.comm.size

    def _name(self, index: int) -> str:
        return next(iter(self.table.of[index].values())).name.rpartition(".")[0]
