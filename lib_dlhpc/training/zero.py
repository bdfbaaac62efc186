"""ZeRO: replicas shard the state that data parallelism replicates (Rajbhandari et al. 2020, sections 5.1 to 5.3).

A network's flat array is cut into units, and each replica updates its part of every unit:

    1   optimizer state   gradients are reduce-scattered, updated weights all-gathered
    2   gradients too     a bucket of gradients is reduce-scattered as soon as it is filled, and freed
    3   weights too       a block's weights are all-gathered just before use and freed afterwards

A unit is what one collective moves, so that all replicas send the same amount: a bucket, or at level 3 a block
or a layer (costs/fsdp_units.py). Where weight gradients have a pass of their own, buckets leave with it; gradients that
backward has computed already, those of normalizations and tables, wait for it in full size.
With hybrid sharding neighbors do so, and those that have the same shard sum its gradients (Zhao et al. 2023).
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.arena import Arena
from lib_dlhpc.layers.base.saved import Array, Tensors
from lib_dlhpc.schedules.ring_collectives import Rounds
from lib_dlhpc.training.gradient_allreduce import bounds_of, range_of
from lib_dlhpc.training.ordered_collectives import DeferredCollective, InOrder
from lib_dlhpc.training.passes import Order
from lib_dlhpc.training.record import Recorder
from lib_dlhpc.training.sharding import Range, Sharding, cut_out
from lib_dlhpc.training.weights import Parameter, Table


class Shards:
    """The weight storage of ZeRO levels 2 and 3: gradients are sharded, at level 3 weights as well.

    layers: of each bucket, the last first: the first, and one past the last. tables: of other stages, too.
    kept: whether weights are gathered once a step, a bucket at a time, and stay until the update; by_layer: or before
    each pass, a layer at a time. alike: the replicas with the same experts, which shard the tensors `experts`. order:
    the passes; gradients that come before the pass in which their bucket is filled wait for it.
    """

    def __init__(
        self,
        table: Table,
        dtype: Any,
        arena: Arena,
        level: int,
        comm: Any,
        copies: Any,
        layers: Sequence[Range],
        recorder: Recorder,
        tables: Sequence[str] = (),
        kept: bool = False,
        by_layer: bool = False,
        alike: Any = None,
        experts: Collection[str] = (),
        order: Order | None = None,
    ) -> None:
        self.kept = kept
        self.table, self.dtype, self.level = table, np.dtype(dtype), level
        self.recorder, self.arena = recorder, arena
        self.layers, self.buckets = layers, [range_of(table.parameters, *layer) for layer in layers]
        units = bounds_of(table.parameters) if by_layer else self.buckets
        theirs = [p for p in table.parameters if p.name in experts]
        whole_parameters = [p for p in table.parameters if p.name in tables] + theirs
        self.sharding = Sharding(cut_out(units, whole_parameters), comm, copies, alike, theirs)
        self.whole = np.zeros(table.size if level == 2 else 0, dtype)
        self.weights = np.zeros(self.sharding.size if level == 3 else 0, dtype)  # of the shard
        self.gradients = np.zeros(self.sharding.size, dtype)
        self._views = table.views(self.whole) if level == 2 else []
        self._gathers = InOrder()
        # Gathered units, by the layers that each all-gather is for.
        self._here: dict[range, dict[Range, tuple[int, Array]]] = {}
        self._now = range(0)  # the layers in use
        # Looked up in each step: the units that layers see, the tensors of a layer in them, and those of buckets.
        self._units_of: dict[range, list[Range]] = {}
        self._cuts = [self._cut(layer) for layer in range(len(table.of))] if level == 3 else []
        self._places: dict[str, tuple[int, slice]] = {}
        self._names: dict[range, str] = {}
        self._filling: dict[int, Tensors] = {}
        self.first_bucket = 1  # its number in the timeline, if a rank has several stages
        self._wanted: int | None = None
        self._filled: dict[int, Array] = {}  # buckets by number
        self._early = order.early if order else frozenset[int]()  # layers
        self._waiting: dict[Parameter, Array] = {}  # gradients of early layers, summed
        self._apart: dict[Parameter, Array] = {}  # those being written
        self._sums = InOrder()  # of buckets
        self.owners = (comm, alike) if experts else (comm,)
        self._begun = -1  # the bucket that another group sums next

    def begin(self, passes: int) -> None:
        """Zero the gradients and drop gathered weights, which may be outdated."""
        self.gradients.fill(0)
        self._waiting.clear()
        self.forget()

    def forget(self) -> None:
        """Free all gathered weights."""
        self._gathers.wait()
        self._here, self._now = {}, range(0)
        if self.kept:
            self.whole, self._views = np.zeros(0, self.dtype), []

    def to_gather(self, start: int, stop: int) -> Array:
        """Return the array of all weights, with this rank's shard of a range, which is to be gathered."""
        if self.kept:
            if self.whole.size != self.table.size:
                self.whole = np.empty(self.table.size, self.dtype)
                self._views = self.table.views(self.whole)
            for unit in self.sharding.within(start, stop):
                self.whole[self.sharding.own(*unit)] = self.weights[self.sharding.mine(*unit)]
        return self.whole

    def back(self, last: bool) -> None:
        """Do nothing: gradients are accumulated."""

    def take(self, index: int, then: int | None) -> Tensors:
        """Return a layer's weights, gathered by `fetch`."""
        if self.level == 2 or self.kept:
            return self._views[index]
        if index not in self._now:
            self._now = next(layers for layers in self._here if index in layers)
            with self.recorder.waits(self._name(self._now)):
                for number, _ in self._here[self._now].values():
                    self._gathers.wait(number)
        units, self._wanted = self._here[self._now], then
        return {
            name: units[unit][1][part].reshape(shape)
            for name, unit, part, shape in self._cuts[index]
        }

    def release(self, index: int) -> None:
        """Free the memory, unless a layer of the same gather is next."""
        if self.level == 3 and self._wanted not in self._now:
            self._here.pop(self._now, None)
            self._now = range(0)

    def target(self, index: int) -> Tensors:
        """Return views of the bucket being filled, or arrays that wait until it is."""
        sees = self.table.of[index]
        if index not in self._early:
            return {name: self._part(p) for name, p in sees.items()}
        self._apart = {p: self.arena.array(p.shape, self.dtype) for p in sees.values()}
        for add in self.table.adds:
            if add in self._apart:
                self._apart[add].fill(0)
        return {name: self._apart[p] for name, p in sees.items()}

    def written(self, index: int) -> None:
        """Add what waits for its bucket; progress what is in flight."""
        for p, array in self._apart.items():
            if p in self._waiting:
                self._waiting[p] += array
            else:
                self._waiting[p] = array
        self._apart = {}
        self._sums.test()
        self._gathers.test()

    def views(self, parameters: Sequence[Parameter]) -> list[Array]:
        """Return the gradients of tensors in a bucket that is not sent yet."""
        return [self._part(p) for p in parameters]

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
            with self.recorder.waits("a bucket"):
                self._sums.wait()

    def fetch(self, first: int, stop: int, comm: Any) -> None:
        """Start to gather what a group owns of the weights that layers first, ..., stop - 1 see.

        It follows those that are being gathered.
        """
        layers = range(first, stop)
        here, name = self._here.setdefault(layers, {}), self._name(layers)
        if layers not in self._units_of:
            seen = {unit for layer in layers for _, unit, _, _ in self._cuts[layer]}
            self._units_of[layers] = sorted(seen)
        for unit in self._units_of[layers]:
            if unit in here or self.sharding.group(unit) is not comm:
                continue
            rounds, flat = self.sharding.gathering(self.weights, *unit)
            size = flat.nbytes // comm.size  # what this rank contributes
            ends = (partial(self.recorder.begin, name, size), partial(self.recorder.end, name))
            here[unit] = self._gathers.post(DeferredCollective(rounds), *ends), flat

    def post(self, number: int) -> None:
        """Start the reduce-scatter of a bucket after the previous one, so that at most two are in memory.

        With experts each bucket has two numbers, as in expert_exchange.py.
        """
        bucket, which = divmod(number, len(self.owners))
        comm, bounds = self.owners[which], self.buckets[bucket]
        if bucket != self._begun:
            self.finish()
        flat, name = self._bucket(bucket), f"bucket {self.first_bucket + bucket}"
        comms = [self.sharding.group(unit) for unit in self.sharding.within(*bounds)]
        more = any(group is owner for owner in self.owners[which + 1 :] for group in comms)
        self._begun = bucket if more else -1
        if not more:
            del self._filled[bucket]
        self._sums.post(
            DeferredCollective(partial(self._sum, bounds, flat, comm)),
            partial(self.recorder.begin, name, flat.nbytes),
            partial(self.recorder.end, name),
        )

    def _sum(self, bucket: Range, flat: Array, comm: Any) -> Rounds:
        """Reduce-scatter what a group owns of a bucket and add it to the shard's gradients."""
        yield from self.sharding.reduce_scatter(flat, bucket[0], comm)
        for unit in self.sharding.within(*bucket):
            if self.sharding.group(unit) is not comm:
                continue
            shard = self.sharding.own(*unit)
            summed = flat[shard.start - bucket[0] : shard.stop - bucket[0]]
            self.gradients[self.sharding.mine(*unit)] += summed

    def _part(self, p: Parameter) -> Array:
        """Return the view for a tensor's gradients; those of tied weights start at zero."""
        if p.name not in self._places:
            layers = enumerate(self.layers)
            number = next(n for n, (first, stop) in layers if first <= p.layer < stop)
            start = self.buckets[number][0]
            self._places[p.name] = number, slice(p.start - start, p.stop - start)
        number, part = self._places[p.name]
        return self._bucket(number)[part].reshape(p.shape)

    def _cut(self, layer: int) -> list[tuple[str, Range, slice, tuple[int, ...]]]:
        """Return the names of a layer's tensors, the unit that each is in, where, and their shapes."""
        buckets = []
        for name, p in self.table.of[layer].items():
            unit = self.sharding.unit(p.start)
            buckets.append((name, unit, slice(p.start - unit[0], p.stop - unit[0]), p.shape))
        return buckets

    def _bucket(self, number: int) -> Array:
        """Return a bucket that is being filled."""
        if number not in self._filled:
            start, stop = self.buckets[number]
            flat = self._filled[number] = self.arena.array((stop - start,), self.dtype)
            for add in self.table.adds:
                if start <= add.start < stop:
                    flat[add.start - start : add.stop - start] = 0
            for p in self.table.parameters:
                if p.layer in self._early and start <= p.start < stop:
                    view = flat[p.start - start : p.stop - start].reshape(p.shape)
                    view[...] = self._waiting.pop(p, 0)
        return self._filled[number]

    def _name(self, layers: range) -> str:
        """Return what the gather of the weights of some layers is called: after the layer, or their block."""
        if layers not in self._names:
            names = {
                p.name.rpartition(".")[0] for layer in layers for p in self.table.of[layer].values()
            }
            first = min(names)
            self._names[layers] = (
                f"weights {first if len(names) == 1 else first.rpartition('.')[0]}"
            )
        return self._names[layers]
