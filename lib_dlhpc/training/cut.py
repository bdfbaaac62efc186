"""Cut: a flat array shared out, unit by unit, and put together again by the halves of a ring."""

from bisect import bisect_right
from itertools import accumulate
from typing import Any

import numpy as np

from lib_dlhpc.schedules.halves import Rounds, Scratch, UnderWay, allgather, reduce_scatter
from lib_dlhpc.training.data import share
from lib_dlhpc.training.layers.kept import Array
from lib_dlhpc.training.weights import Parameter

Range = tuple[int, int]


class Cut:
    """Which parts of a flat array each rank of a group moves, and how to put them together.

    units: ranges that are all of the array. A rank's shard is its shares of them, one behind the other.
    """

    def __init__(self, units: list[Range], comm: Any) -> None:
        self.comm, self.units = comm, sorted(units) or [(0, 0)]
        self._scratch = Scratch()
        self._own = [self.own(*unit) for unit in self.units]
        sizes = [own.stop - own.start for own in self._own]
        *self._places, self.size = accumulate(sizes, initial=0)  # of the shares in the shard

    def unit(self, at: int) -> Range:
        """Return the unit in which an element lies."""
        return self.units[self._number(at)]

    def within(self, start: int, stop: int) -> list[Range]:
        """Return the units that begin in a range."""
        return [unit for unit in self.units if start <= unit[0] < stop]

    def parts(self, start: int, stop: int) -> list[slice]:
        """Return where each rank's part of a range within one unit lies in the flat array."""
        first, last = self.unit(start)
        found = []
        for rank in range(self.comm.size):
            part = share(last - first, rank, self.comm.size)
            ends = (min(max(first + at, start), stop) for at in (part.start, part.stop))
            found.append(slice(*ends))
        return found

    def own(self, start: int, stop: int) -> slice:
        """Return where this rank's part of a range within one unit lies in the flat array."""
        return self.parts(start, stop)[self.comm.rank]

    def mine(self, start: int, stop: int) -> slice:
        """Return where this rank's part of a range lies in its shard."""
        return slice(self._before(start), self._before(stop))

    def clipped(self, parameters: list[Parameter], first: int = 0) -> list[Parameter]:
        """Return all parameters as they lie in the shard from `first` on; of some, nothing does."""
        found = []
        for each in parameters:
            part = self.mine(each.start, each.stop)
            start, stop = part.start - first, part.stop - first
            found.append(Parameter(each.name, each.layer, start, stop, each.shape, each.decays))
        return found

    def blocks(self, flat: Array, start: int) -> list[Array]:
        """Return each rank's part of an array that lies from `start` on, within one unit."""
        parts = self.parts(start, start + flat.size)
        return [flat[part.start - start : part.stop - start] for part in parts]

    def reduce_scatter(self, flat: Array, start: int) -> Rounds:
        """Add up, in place, this rank's parts of the units that lie from `start` on; one such sum at a time."""
        units = self.within(start, start + flat.size)
        blocks = (self.blocks(flat[a - start : b - start], a) for a, b in units)
        return reduce_scatter(self.comm, blocks, self._scratch)

    def gather(self, shard: Array, start: int, stop: int) -> tuple[UnderWay, Array]:
        """Begin to put a range within one unit together from the shards; return where it comes."""
        flat = np.empty(stop - start, shard.dtype)
        blocks = self.blocks(flat, start)
        blocks[self.comm.rank][...] = shard[self.mine(start, stop)]
        return UnderWay(allgather(self.comm, blocks)), flat

    def keep(self, shard: Array, start: int, flat: Array) -> None:
        """Put this rank's part of an array that lies from `start` on, within one unit, into its shard."""
        own = self.blocks(flat, start)[self.comm.rank]
        shard[self.mine(start, start + flat.size)] = own

    def spread(self, flat: Array) -> None:
        """Put everyone's parts where they belong in the whole array, of which each has its own."""
        for start, stop in self.units:
            UnderWay(allgather(self.comm, self.blocks(flat[start:stop], start))).wait()

    def _before(self, at: int) -> int:
        """Return how many of this rank's elements lie before one of the flat array."""
        number = self._number(at)
        own = self._own[number]
        return self._places[number] + min(max(at, own.start), own.stop) - own.start

    def _number(self, at: int) -> int:
        return max(0, bisect_right(self.units, at, key=lambda unit: unit[0]) - 1)
