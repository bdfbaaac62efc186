"""ZeRO: replicas share out what each would have a copy of (Rajbhandari et al. 2020, sections 5.1 to 5.3).

A network's flat array is cut into as many equal shards as there are replicas, and each moves its own:

    1   optimiser state   gradients are summed where their shard is, weights gathered when they have moved
    2   gradients too     a bucket of gradients goes as soon as it is filled, and its memory with it
    3   weights too       those of a layer are gathered just before its use, and let go after it
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from lib_dlhpc.train.data import share
from lib_dlhpc.train.exchange import bounds_of
from lib_dlhpc.train.layers.kept import Array, Tensors
from lib_dlhpc.train.layers.room import Room
from lib_dlhpc.train.record import Recorder
from lib_dlhpc.train.together import PIECE
from lib_dlhpc.train.weights import Parameter, Table

Range = tuple[int, int]


class Cut:
    """Which part of a flat array each rank of a group moves, and how to put them together."""

    def __init__(self, size: int, comm: Any) -> None:
        self.comm = comm
        shares = [share(size, rank, comm.size) for rank in range(comm.size)]
        self.shards = [(part.start, part.stop) for part in shares]
        self.own = shares[comm.rank]

    def counts(self, start: int, stop: int) -> list[int]:
        """Return how many elements of a range each rank has."""
        return [max(0, min(b, stop) - max(a, start)) for a, b in self.shards]

    def mine(self, start: int, stop: int) -> slice:
        """Return where this rank's part of a range lies in its shard."""
        first, last = self.own.start, self.own.stop
        begin = min(max(start, first), last)
        return slice(begin - first, max(begin, min(stop, last)) - first)

    def clipped(self, parameters: list[Parameter]) -> list[Parameter]:
        """Return all parameters as they lie in the shard; of some, nothing does."""
        found = []
        for each in parameters:
            part = self.mine(each.start, each.stop)
            found.append(
                Parameter(each.name, each.layer, part.start, part.stop, each.shape, each.decays)
            )
        return found

    def reduce_scatter(self, flat: Array, start: int) -> tuple[Any, Array]:
        """Begin to add up the array that lies from `start` on; return the request and where sums come."""
        from mpi4py import MPI

        counts = self.counts(start, start + flat.size)
        sums = np.empty(counts[self.comm.rank], flat.dtype)
        return self.comm.Ireduce_scatter(flat, sums, counts, MPI.SUM), sums

    def gather(self, shard: Array, start: int, stop: int) -> tuple[Any, Array]:
        """Begin to put a range together from the shards; return the request and where it comes."""
        flat, counts = np.empty(stop - start, shard.dtype), self.counts(start, stop)
        part = np.ascontiguousarray(shard[self.mine(start, stop)])
        request = self.comm.Iallgatherv(part, [flat, (counts, _displacements(counts))])
        return request, flat

    def spread(self, flat: Array) -> None:
        """Put everyone's shard where it belongs in the whole array, of which each has its own."""
        from mpi4py import MPI

        counts = self.counts(0, flat.size)
        self.comm.Allgatherv(MPI.IN_PLACE, [flat, (counts, _displacements(counts))])


class Shards:
    """The weights of a network of which replicas share out gradients, and at level 3 the weights too.

    summed: called with a layer's index and the gradients of its own tensors; adds up, in place, what other
    groups than the replicas must add. A bucket has `size` B at least, or is the last.
    """

    def __init__(
        self,
        table: Table,
        dtype: Any,
        room: Room,
        level: int,
        comm: Any,
        size: float,
        summed: Callable[[int, Tensors], None],
        recorder: Recorder,
    ) -> None:
        self.table, self.dtype, self.level = table, np.dtype(dtype), level
        self.cut, self.summed, self.recorder = Cut(table.size, comm), summed, recorder
        self.room = room
        own = self.cut.own.stop - self.cut.own.start
        self.whole = np.zeros(table.size if level == 2 else 0, dtype)
        self.weights = self.whole[self.cut.own] if level == 2 else np.zeros(own, dtype)
        self.gradients = np.zeros(own, dtype)
        self._views = table.views(self.whole) if level == 2 else []
        self._here: dict[int, tuple[list[tuple[Any, Array]], list[Range]]] = {}
        self._filling: dict[int, Tensors] = {}
        self.buckets = bounds_of(table.parameters, size / self.dtype.itemsize)
        self.first_bucket = 0  # its number in the record, where a rank has several of these
        self._wanted: int | None = None
        self._filled: dict[int, Array] = {}  # buckets by number
        self._under_way: _Sum | None = None

    def begin(self, passes: int) -> None:
        """No gradient is there yet, and weights may have moved."""
        self.gradients.fill(0)
        self.forget()

    def forget(self) -> None:
        """Let go of all weights that were gathered."""
        for arriving, _ in self._here.values():
            for request, _ in arriving:
                request.Wait()
        self._here = {}

    def back(self, last: bool) -> None:
        """Each pass adds its own."""

    def take(self, index: int, then: int | None) -> Tensors:
        """Return a layer's weights; those of the next set out."""
        if self.level == 2:
            return self._views[index]
        self._fetch(index)
        arriving, ranges = self._here[index]
        with self.recorder.communicates(f"weights {self._name(index)}", self._size(arriving)):
            for request, _ in arriving:
                request.Wait()
        tensors = {}
        for name, p in self.table.of[index].items():
            for (_, array), (start, stop) in zip(arriving, ranges, strict=True):
                if start <= p.start and p.stop <= stop:
                    tensors[name] = array[p.start - start : p.stop - start].reshape(p.shape)
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
            self._under_way.carry_on(wait=False)
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
                self.put(p, tensor)

    def put(self, parameter: Parameter, tensor: Array) -> None:
        """Keep the shard's part of one tensor."""
        part = self.cut.mine(parameter.start, parameter.stop)
        first = self.cut.own.start + part.start - parameter.start
        self.weights[part] = tensor.reshape(-1)[first : first + part.stop - part.start]

    def finish(self) -> None:
        """Wait until the shard's gradients are the sums over all replicas and passes."""
        if self._under_way is None:
            return
        with self.recorder.communicates("a bucket", 0):
            while not self._under_way.carry_on(wait=True):
                pass
        self.recorder.end_bucket(self.first_bucket + self._under_way.number)
        self._under_way = None

    def _fetch(self, index: int) -> None:
        if index in self._here:
            return
        ranges = _joined([(p.start, p.stop) for p in self.table.of[index].values()])
        self._here[index] = [self.cut.gather(self.weights, *each) for each in ranges], ranges

    def _send(self, number: int) -> None:
        """Begin to sum a bucket; the one before it must be through, so that two are in memory at most."""
        self.finish()
        flat, start = self._filled.pop(number), self.buckets[number][0]
        self._under_way = _Sum(self.cut, self.gradients, number, start, flat)
        self.recorder.begin_bucket(self.first_bucket + number, flat.nbytes)

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

    def _size(self, arriving: list[tuple[Any, Array]]) -> int:
        """Return the B that this rank gives of the weights that are put together."""
        return sum(array.nbytes for _, array in arriving) // len(self.cut.shards)

    def _name(self, index: int) -> str:
        return next(iter(self.table.of[index].values())).name.rpartition(".")[0]


class _Sum:
    """A bucket on its way to the shards, a piece at a time: MPI's sums take as much memory as a message."""

    def __init__(self, cut: Cut, gradients: Array, number: int, start: int, flat: Array) -> None:
        self.cut, self.gradients, self.number = cut, gradients, number
        self._start, self._flat, self._next = start, flat, 0
        self._piece: tuple[Any, Array, slice] | None = None
        self._begin()

    def carry_on(self, wait: bool) -> bool:
        """Add the piece that has come, if it has, and begin the next; return whether all have come."""
        if self._piece is not None:
            request, sums, place = self._piece
            if wait:
                request.Wait()
            elif not request.Test():
                return False
            self.gradients[place] += sums
            self._begin()
        return self._piece is None

    def _begin(self) -> None:
        self._piece = None
        if self._next >= self._flat.size:
            return
        step = max(1, PIECE // self._flat.itemsize)
        part = self._flat[self._next : self._next + step]
        first = self._start + self._next
        request, sums = self.cut.reduce_scatter(part, first)
        self._piece = request, sums, self.cut.mine(first, first + part.size)
        self._next += part.size


def _joined(ranges: list[Range]) -> list[Range]:
    """Return the ranges in order, neighbours as one."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, stop))
    return joined


def _displacements(counts: list[int]) -> list[int]:
    return [0, *accumulate(counts)][:-1]
