"""Exchange: what the ranks of a group do between two layers of which each has a part.

Every rank of the group has a communicator, context.groups[group]. What a layer does forward has its
counterpart backward, because a sum spreads gradients and a copy collects them (Shoeybi et al. 2019,
"Megatron-LM", section 3; Korthikanti et al. 2022, section 4.2.2):

    all_reduce       the sum over the ranks                                   backward none
    none             each rank has the same                                   backward all_reduce
    all_gather       the parts of all ranks side by side                      backward slice or reduce_scatter
    slice            this rank's part                                         backward all_gather
    reduce_scatter   this rank's part of the sum                              backward all_gather
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from lib_dlhpc.schedules.halves import UnderWay, allgather, reduce_scatter
from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.layers.kept import Array, Kept, Tensors
from lib_dlhpc.training.together import PIECE, add_up


class Exchange:
    """One way of exchanging forward and one backward, along one axis, in parts that may be uneven."""

    def __init__(self, layer: Layer) -> None:
        options = layer.attributes
        self.name, self.group = layer.name, options["group"]
        self.ways = options["forward"], options["backward"]
        self.axis, self.rank = axis_of(layer, options.get("axis", 0)), options.get("rank", 0)
        self.parts = [slice(first, last) for first, last in pairwise(options.get("cuts", ()))]

    def forward(self, weights: Tensors, kept: Kept, x: Array) -> Array:
        """Return y; where nothing is done it is x itself."""
        if self.ways == ("all_gather", "reduce_scatter"):
            kept.values["part"] = x
        return self._exchange(self.ways[0], kept, x, kept.inplace)

    def backward(self, weights: Tensors, gradients: Tensors, kept: Kept, dy: Array) -> Any:
        """Return dx."""
        return self._exchange(self.ways[1], kept, dy, True) if kept.wants_dx else None

    def again(self, kept: Kept) -> Array:
        """Return once more what forward gathered: parts are kept, the whole is not.

        Source: Korthikanti et al. 2022, section 4.2.2.
        """
        return self._exchange(self.ways[0], kept, kept.values["part"], False)

    def _exchange(self, way: str, kept: Kept, x: Array, overwrite: bool) -> Array:
        comm = kept.context.groups.get(self.group)
        if way == "none" or comm is None or comm.size == 1:
            return x
        if way == "slice":
            return copied(kept, x[self._at(self.rank)])
        with kept.context.communicates(f"{way} {self.name}", self._bytes(way, x)):
            if way == "all_reduce":
                return self._all_reduce(kept, comm, x, overwrite)
            if way == "all_gather":
                return self._all_gather(kept, comm, x)
            return self._reduce_scatter(kept, comm, x)

    def _all_reduce(self, kept: Kept, comm: Any, x: Array, overwrite: bool) -> Array:
        y = x if overwrite and x.flags.c_contiguous else copied(kept, x)
        add_up(comm, y)
        return y

    def _all_gather(self, kept: Kept, comm: Any, x: Array) -> Array:
        """Collect the parts one behind the other, then put each where it belongs."""
        whole = (*x.shape[: self.axis], self.parts[-1].stop, *x.shape[self.axis + 1 :])
        y = kept.array(whole, x.dtype)
        for piece in self._pieces(y):
            parts, blocks = self._blocks(kept, y[piece])
            blocks[self.rank].reshape(parts[self.rank].shape)[...] = x[piece]
            UnderWay(allgather(comm, blocks)).wait()
            for part, block in zip(parts, blocks, strict=True):
                part[...] = block.reshape(part.shape)
        return y

    def _reduce_scatter(self, kept: Kept, comm: Any, x: Array) -> Array:
        """Put the parts one behind the other, then keep the sum of one's own."""
        y = kept.array(x[self._at(self.rank)].shape, x.dtype)
        for piece in self._pieces(x):
            parts, blocks = self._blocks(kept, x[piece])
            for part, block in zip(parts, blocks, strict=True):
                block.reshape(part.shape)[...] = part
            UnderWay(reduce_scatter(comm, [blocks], kept.array)).wait()
            own = y[piece]
            own[...] = blocks[self.rank].reshape(own.shape)
        return y

    def _pieces(self, whole: Array) -> Iterator[tuple[slice, ...]]:
        """Cut another axis than the ranks', so that what travels at a time takes little memory."""
        axis = 0 if self.axis else 1
        step = max(1, whole.shape[axis] * PIECE // max(1, whole.nbytes))
        for first in range(0, whole.shape[axis], step):
            yield (*(slice(None),) * axis, slice(first, first + step))

    def _at(self, rank: int) -> tuple[slice, ...]:
        return (*(slice(None),) * self.axis, self.parts[rank])

    def _blocks(self, kept: Kept, whole: Array) -> tuple[list[Array], list[Array]]:
        """Return the ranks' parts of an array, and as much memory for each, one behind the other."""
        parts = [whole[self._at(rank)] for rank in range(len(self.parts))]
        flat, ends = (
            kept.array((whole.size,), whole.dtype),
            np.cumsum([0, *(p.size for p in parts)]),
        )
        return parts, [flat[first:last] for first, last in pairwise(ends.tolist())]

    def _bytes(self, way: str, x: Array) -> int:
        if way != "all_gather" or not x.size:
            return x.nbytes
        return x.nbytes // x.shape[self.axis] * self.parts[-1].stop


def sum_over_group(kept: Kept, group: str, values: Array) -> Array:
    """Return the sum of a small array over the ranks of a group."""
    comm = kept.context.groups.get(group)
    if comm is None or comm.size == 1:
        return values
    from mpi4py import MPI

    total = np.array(values, order="C")
    with kept.context.communicates(f"sum over {group}", total.nbytes):
        comm.Allreduce(MPI.IN_PLACE, total, MPI.SUM)
    return total


def axis_of(layer: Layer, axis: int) -> int:
    """Return where an axis of a sample lies in the array: samples are the last axis of images, else the first."""
    return axis if len(layer.input_shape) >= 3 else axis + 1


def copied(kept: Kept, x: Array) -> Array:
    """Return the same numbers in one piece, in memory of their own."""
    y = kept.array(x.shape, x.dtype)
    y[...] = x
    return y
