"""ZeRO: replicas share out what each would have a copy of (Rajbhandari et al. 2020, sections 5.1 to 5.3).

A network's flat array is cut into units, and of each unit every replica moves its share:

    1   optimiser state   gradients are summed where their share is, weights gathered when they have moved
    2   gradients too     a bucket of gradients goes as soon as it is filled, and its memory with it
    3   weights too       those of a layer are gathered just before its use, and let go after it

A unit is what travels together, so that all replicas have as much to send: a bucket, or at level 3 a layer.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from lib_dlhpc.schedules.halves import Rounds, UnderWay
from lib_dlhpc.training.cut import Cut, Range
from lib_dlhpc.training.exchange import bounds_of
from lib_dlhpc.training.layers.kept import Array, Tensors
from lib_dlhpc.training.layers.room import Room
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.weights import Parameter, Table


class Shards:
    """The weights of a network of which replicas share out gradients, and at level 3 the weights too.

    buckets: makes ranges of whole layers of the parameters, the last first. summed: called with a layer's index
    and the gradients of its own tensors; adds up, in place, what other groups than the replicas must add.
    """

    def __init__(
        self,
        table: Table,
        dtype: Any,
        room: Room,
        level: int,
        comm: Any,
        buckets: Callable[[list[Parameter]], list[Range]],
        summed: Callable[[int, Tensors], None],
        recorder: Recorder,
    ) -> None:
        self.table, self.dtype, self.level = table, np.dtype(dtype), level
        self.summed, self.recorder, self.room = summed, recorder, room
        self.buckets = buckets(table.parameters)
        layers = bounds_of(table.parameters, 1)
        self.cut = Cut(self.buckets if level == 2 else layers, comm)
        self.whole = np.zeros(table.size if level == 2 else 0, dtype)
        self.weights = np.zeros(self.cut.size if level == 3 else 0, dtype)  # of the shard
        self.gradients = np.zeros(self.cut.size, dtype)
        self._views = table.views(self.whole) if level == 2 else []
        self._here: dict[int, dict[Range, tuple[UnderWay, Array]]] = {}  # units, by layer
        self._filling: dict[int, Tensors] = {}
        self.first_bucket = 0  # its number in the record, where a rank has several of these
        self._wanted: int | None = None
        self._filled: dict[int, Array] = {}  # buckets by number
        self._under_way: tuple[int, UnderWay, Array] | None = None  # a bucket

    def begin(self, passes: int) -> None:
        """No gradient is there yet, and weights may have moved."""
        self.gradients.fill(0)
        self.forget()

    def forget(self) -> None:
        """Let go of all weights that were gathered."""
        for units in self._here.values():
            for under_way, _ in units.values():
                under_way.wait()
        self._here = {}

    def back(self, last: bool) -> None:
        """Each pass adds its own."""

    def take(self, index: int, then: int | None) -> Tensors:
        """Return a layer's weights; those of the next set out."""
        if self.level == 2:
            return self._views[index]
        self._fetch(index)
        units = self._here[index]
        with self.recorder.communicates(f"weights {self._name(index)}", self._size(index)):
            for under_way, _ in units.values():
                under_way.wait()
        tensors = {}
        for name, p in self.table.of[index].items():
            unit = self.cut.unit(p.start)
            part = slice(p.start - unit[0], p.stop - unit[0])
            tensors[name] = units[unit][1][part].reshape(p.shape)
        if then is not None:
            self._fetch(then)
        self._wanted = then
        return tensors

    def let_go(self, index: int) -> None:
        """Free the memory, unless the same layer is the next."""
        if self.level == 3 and self._wanted != index:
            self._here.pop(index, None)

    def target(self, index: int) -> Tensors:
        """Return views of the bucket that is being filled."""
        return {name: self._part(p) for name, p in self.table.of[index].items()}

    def written(self, index: int) -> None:
        """Send the bucket that this layer completes."""
        own = [p for p in self.table.parameters if p.layer == index]
        self.summed(index, {p.name: self._part(p) for p in own})
        if self._under_way is not None:
            self._under_way[1].test()
        for number, (start, _) in enumerate(self.buckets):
            if own and start == own[0].start:
                self._send(number)

    def fill(self, index: int) -> Tensors:
        """Return arrays for a layer's weights."""
        if self.level == 2:
            return self._views[index]
        sees = self.table.of[index]
        self._filling[index] = {name: np.zeros(p.shape, self.dtype) for name, p in sees.items()}
        return self._filling[index]

    def filled(self, index: int) -> None:
        """Keep the shard's part of them."""
        for name, tensor in self._filling.pop(index, {}).items():
            p = self.table.of[index][name]
            if p.layer == index:
                self.cut.keep(self.weights, p.start, tensor.reshape(-1))

    def finish(self) -> None:
        """Wait until the shard's gradients are the sums over all replicas and passes."""
        if self._under_way is None:
            return
        number, under_way, _ = self._under_way
        with self.recorder.communicates("a bucket", 0):
            under_way.wait()
        self.recorder.end_bucket(self.first_bucket + number)
        self._under_way = None

    def _fetch(self, index: int) -> None:
        if index not in self._here:
            units = {self.cut.unit(p.start) for p in self.table.of[index].values()}
            self._here[index] = {
                unit: self.cut.gather(self.weights, *unit) for unit in sorted(units)
            }

    def _send(self, number: int) -> None:
        """Begin to sum a bucket; the one before it must be through, so that two are in memory at most."""
        self.finish()
        flat = self._filled.pop(number)
        self._under_way = number, UnderWay(self._sum(self.buckets[number], flat)), flat
        self.recorder.begin_bucket(self.first_bucket + number, flat.nbytes)

    def _sum(self, bucket: Range, flat: Array) -> Rounds:
        """Add a bucket, summed over the replicas, to the shard's gradients."""
        yield from self.cut.reduce_scatter(flat, bucket[0])
        for unit in self.cut.within(*bucket):
            own = self.cut.own(*unit)
            summed = flat[own.start - bucket[0] : own.stop - bucket[0]]
            self.gradients[self.cut.mine(*unit)] += summed

    def _part(self, p: Parameter) -> Array:
        """Return where a tensor's gradients go; those to which several layers add start at zero."""
        number, (start, stop) = next(
            (n, each) for n, each in enumerate(self.buckets) if each[0] <= p.start < each[1]
        )
        if number not in self._filled:
            flat = self._filled[number] = self.room.array((stop - start,), self.dtype)
            for each in self.table.adds:
                if start <= each.start < stop:
                    flat[each.start - start : each.stop - start] = 0
        return self._filled[number][p.start - start : p.stop - start].reshape(p.shape)

    def _size(self, index: int) -> int:
        """Return the B that this rank gives of the weights that are put together."""
        return sum(flat.nbytes for _, flat in self._here[index].values()) // self.cut.comm.size

    def _name(self, index: int) -> str:
        return next(iter(self.table.of[index].values())).name.rpartition(".")[0]
