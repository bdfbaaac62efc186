"""Sharding of a flat array, unit by unit, with ring reduce-scatter and all-gather."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.schedules.ring_collectives import (
    InFlight,
    Rounds,
    Scratch,
    allgather,
    reduce_scatter,
)
from lib_dlhpc.training.data import share
from lib_dlhpc.training.weights import Parameter

Range = tuple[int, int]


def cut_out(units: list[Range], tensors: list[Parameter]) -> list[Range]:
    """Return consecutive units, cut so that each of some tensors has units of its own; some are empty."""
    edges = [start for start, _ in units] + [max((stop for _, stop in units), default=0)]
    edges += [edge for p in tensors for edge in (p.start, p.stop)]
    return list(pairwise(sorted(edges)))


class Sharding:
    """Which parts of a flat array each rank of a group owns, and how to all-gather them.

    units: ranges that cover the array. A rank's shard is the concatenation of its parts of all units. copies: the
    ranks that have the same shard. alike: the group that owns the units of some tensors, `experts`.
    """

    def __init__(
        self,
        units: list[Range],
        comm: Any,
        copies: Any,
        alike: Any = None,
        experts: Sequence[Parameter] = (),
    ) -> None:
        self.comm, self.copies, self.units = comm, copies, sorted(units) or [(0, 0)]
        self.alike, starts = alike, {p.start for p in experts if p.stop > p.start}
        self._of_experts = {unit for unit in self.units if unit[0] in starts and unit[1] > unit[0]}
        self._scratch = Scratch()
        self._parts: dict[Range, list[slice]] = {}  # a step asks for few ranges, again and again
        self._mine: dict[Range, slice] = {}
        self._within: dict[Range, list[Range]] = {}
        self._own = [self.own(*unit) for unit in self.units]
        sizes = [shard.stop - shard.start for shard in self._own]
        *self._places, self.size = accumulate(sizes, initial=0)  # offsets of the parts in the shard

    def unit(self, position: int) -> Range:
        """Return the unit in which an element lies."""
        return self.units[self._number(position)]

    def group(self, unit: Range) -> Any:
        """Return the communicator of the ranks that own parts of a unit."""
        return self.alike if unit in self._of_experts else self.comm

    def elements(self, start: int, stop: int, comm: Any) -> int:
        """Return the elements of the units that begin in a range and are of a group."""
        units = self.within(start, stop)
        return sum(last - first for first, last in units if self.group((first, last)) is comm)

    def within(self, start: int, stop: int) -> list[Range]:
        """Return the units that begin in a range, but for empty ones."""
        if (start, stop) not in self._within:
            units = [unit for unit in self.units if start <= unit[0] < min(stop, unit[1])]
            self._within[start, stop] = units
        return self._within[start, stop]

    def parts(self, start: int, stop: int) -> list[slice]:
        """Return each rank's part of a range within one unit, as slices of the flat array."""
        if (start, stop) not in self._parts:
            first, last = self.unit(start)
            found, ranks = [], self.group((first, last)).size
            for rank in range(ranks):
                part = share(last - first, rank, ranks)
                ends = (min(max(first + offset, start), stop) for offset in (part.start, part.stop))
                found.append(slice(*ends))
            self._parts[start, stop] = found
        return self._parts[start, stop]

    def own(self, start: int, stop: int) -> slice:
        """Return this rank's part of a range within one unit, as a slice of the flat array."""
        return self.parts(start, stop)[self.group(self.unit(start)).rank]

    def mine(self, start: int, stop: int) -> slice:
        """Return this rank's part of a range, as a slice of its shard."""
        if (start, stop) not in self._mine:
            self._mine[start, stop] = slice(self._before(start), self._before(stop))
        return self._mine[start, stop]

    def clipped(self, parameters: list[Parameter], first: int = 0) -> list[Parameter]:
        """Return all parameters clipped to the shard from `first` on; some are empty."""
        inside = []
        for parameter in parameters:
            part = self.mine(parameter.start, parameter.stop)
            start, stop = part.start - first, part.stop - first
            inside.append(replace(parameter, start=start, stop=stop))
        return inside

    def blocks(self, flat: Array, start: int) -> list[Array]:
        """Return each rank's part of an array that begins at `start`, within one unit."""
        parts = self.parts(start, start + flat.size)
        return [flat[part.start - start : part.stop - start] for part in parts]

    def reduce_scatter(self, flat: Array, start: int, comm: Any = None) -> Rounds:
        """Reduce-scatter, in place, the units of a group from `start` on; one reduce-scatter at a time.

        Ranks that have the same shard then sum what they have.
        """
        comm = comm or self.comm
        units = [u for u in self.within(start, start + flat.size) if self.group(u) is comm]
        blocks = [self.blocks(flat[a - start : b - start], a) for a, b in units]
        yield from reduce_scatter(comm, blocks, self._scratch)
        if self.copies.size > 1:
            shards = (block[comm.rank] for block in blocks)
            parts = [np.array_split(shard, self.copies.size) for shard in shards]
            yield from reduce_scatter(self.copies, parts, self._scratch)
            for part in parts:
                yield from allgather(self.copies, part)

    def gathering(self, shard: Array, start: int, stop: int) -> tuple[Callable[[], Rounds], Array]:
        """Return the all-gather of a range within one unit, to be started, and the target array."""
        flat = np.empty(stop - start, shard.dtype)
        blocks = self.blocks(flat, start)
        comm = self.group(self.unit(start))
        blocks[comm.rank][...] = shard[self.mine(start, stop)]
        return partial(allgather, comm, blocks), flat

    def whole(self, shard: Array, start: int, stop: int) -> tuple[Array, int]:
        """Return a range within one unit, all-gathered from each rank's part of it, and where this rank's begins."""
        flat = np.empty(stop - start, shard.dtype)
        blocks, comm = self.blocks(flat, start), self.group(self.unit(start))
        blocks[comm.rank][...] = shard
        InFlight(allgather(comm, blocks)).wait()
        return flat, sum(block.size for block in blocks[: comm.rank])

    def gather(self, shard: Array, start: int, stop: int) -> Array:
        """Return a range within one unit, all-gathered."""
        rounds, flat = self.gathering(shard, start, stop)
        InFlight(rounds()).wait()
        return flat

    def store(self, shard: Array, start: int, flat: Array) -> None:
        """Store this rank's part of an array that begins at `start`, within one unit, in its shard."""
        own = self.blocks(flat, start)[self.group(self.unit(start)).rank]
        shard[self.mine(start, start + flat.size)] = own

    def all_gather(self, flat: Array, first: int, last: int, comm: Any = None) -> Rounds:
        """All-gather the units, of one group or of all, in a range of the full array, in place."""
        for start, stop in self.within(first, last):
            own = self.group((start, stop))
            if comm is None or own is comm:
                yield from allgather(own, self.blocks(flat[start:stop], start))

    def _before(self, position: int) -> int:
        """Return the offset in this rank's shard of an element of the flat array."""
        number = self._number(position)
        shard = self._own[number]
        return self._places[number] + min(max(position, shard.start), shard.stop) - shard.start

    def _number(self, position: int) -> int:
        return max(0, bisect_right(self.units, position, key=lambda unit: unit[0]) - 1)
