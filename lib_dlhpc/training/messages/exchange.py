"""Exchange: communication of a tensor- or sequence-parallel group between two partitioned layers.

Every group has a communicator, context.groups[group]. Each forward operation has its adjoint in backward: the
adjoint of a sum is a broadcast, and vice versa (Shoeybi et al. 2019,
"Megatron-LM", section 3; Korthikanti et al. 2022, section 4.2.2):

    all_reduce       the sum over the ranks               backward none
    none             replicated input                     backward all_reduce
    all_gather       the parts of all ranks, concatenated backward slice or reduce_scatter
    slice            this rank's part                     backward all_gather
    reduce_scatter   this rank's part of the sum          backward all_gather
    log_softmax      logarithms of the probabilities      backward none: losses give the gradient of the logits
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Saved, Tensors
from lib_dlhpc.schedules.ring_collectives import InFlight, allgather, reduce_scatter
from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.collectives import PIECE, allreduce_in_place


class Exchange:
    """One collective forward and one backward, along one axis, with possibly uneven parts."""

    def __init__(self, layer: Layer) -> None:
        options = layer.attributes
        self.name, self.group = layer.name, options["group"]
        self.ways = options["forward"], options["backward"]
        self.axis, self.rank = axis_of(layer, options.get("axis", 0)), options.get("rank", 0)
        self.parts = [slice(first, last) for first, last in pairwise(options.get("cuts", ()))]

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y; x itself for "none"."""
        if self.ways == ("all_gather", "reduce_scatter"):
            saved.values["part"] = x
        return self._exchange(self.ways[0], saved, x, saved.inplace)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        return self._exchange(self.ways[1], saved, dy, True) if saved.wants_dx else None

    def gather_again(self, saved: Saved) -> Array:
        """All-gather again what forward gathered: only this rank's part is saved.

        Source: Korthikanti et al. 2022, section 4.2.2.
        """
        return self._exchange(self.ways[0], saved, saved.values["part"], False)

    def _exchange(self, way: str, saved: Saved, x: Array, overwrite: bool) -> Array:
        comm = saved.context.groups.get(self.group)
        if way == "none" or comm is None or comm.size == 1:
            return x
        if way == "slice":
            return copied(saved, x[self._at(self.rank)])
        with saved.context.communicates(f"{way} {self.name}", self._bytes(way, x)):
            if way == "all_reduce":
                return self._all_reduce(saved, comm, x, overwrite)
            if way == "log_softmax":
                return log_softmax(comm, x if overwrite else copied(saved, x))
            if way == "all_gather":
                return self._all_gather(saved, comm, x)
            return self._reduce_scatter(saved, comm, x)

    def _all_reduce(self, saved: Saved, comm: Any, x: Array, overwrite: bool) -> Array:
        y = x if overwrite and x.flags.c_contiguous else copied(saved, x)
        allreduce_in_place(comm, y)
        return y

    def _all_gather(self, saved: Saved, comm: Any, x: Array) -> Array:
        """All-gather into a contiguous buffer, then copy each part into place."""
        whole = (*x.shape[: self.axis], self.parts[-1].stop, *x.shape[self.axis + 1 :])
        y = saved.array(whole, x.dtype)
        for piece in self._pieces(y):
            parts, blocks = self._blocks(saved, y[piece])
            blocks[self.rank].reshape(parts[self.rank].shape)[...] = x[piece]
            InFlight(allgather(comm, blocks)).wait()
            for part, block in zip(parts, blocks, strict=True):
                part[...] = block.reshape(part.shape)
        return y

    def _reduce_scatter(self, saved: Saved, comm: Any, x: Array) -> Array:
        """Pack the parts into a contiguous buffer, reduce-scatter it, and return this rank's part."""
        y = saved.array(x[self._at(self.rank)].shape, x.dtype)
        for piece in self._pieces(x):
            parts, blocks = self._blocks(saved, x[piece])
            for part, block in zip(parts, blocks, strict=True):
                block.reshape(part.shape)[...] = part
            InFlight(reduce_scatter(comm, [blocks], saved.array)).wait()
            shard = y[piece]
            shard[...] = blocks[self.rank].reshape(shard.shape)
        return y

    def _pieces(self, whole: Array) -> Iterator[tuple[slice, ...]]:
        """Split along another axis than the ranks', so that the buffers stay small."""
        axis = 0 if self.axis else 1
        step = max(1, whole.shape[axis] * PIECE // max(1, whole.nbytes))
        for first in range(0, whole.shape[axis], step):
            yield (*(slice(None),) * axis, slice(first, first + step))

    def _at(self, rank: int) -> tuple[slice, ...]:
        return (*(slice(None),) * self.axis, self.parts[rank])

    def _blocks(self, saved: Saved, whole: Array) -> tuple[list[Array], list[Array]]:
        """Return views of the ranks' parts of an array, and a contiguous buffer for each."""
        parts = [whole[self._at(rank)] for rank in range(len(self.parts))]
        flat, ends = (
            saved.array((whole.size,), whole.dtype),
            np.cumsum([0, *(p.size for p in parts)]),
        )
        return parts, [flat[first:last] for first, last in pairwise(ends.tolist())]

    def _bytes(self, way: str, x: Array) -> int:
        if way == "log_softmax":
            return 2 * x.nbytes // max(1, x.shape[-1])
        if way != "all_gather" or not x.size:
            return x.nbytes
        return x.nbytes // x.shape[self.axis] * self.parts[-1].stop


def log_softmax(comm: Any, x: Array) -> Array:
    """Replace logits by the logarithms of their probabilities; each rank of `comm` has some classes, the last axis."""
    from mpi4py import MPI

    largest = x.max(axis=-1, keepdims=True, initial=-np.inf)
    comm.Allreduce(MPI.IN_PLACE, largest, MPI.MAX)
    x -= largest
    total = np.empty_like(largest)
    # One sample at a time, so that the exponentials take little memory.
    for sums, sample in zip(total, x, strict=True):
        np.exp(sample).sum(axis=-1, keepdims=True, out=sums)
    allreduce_in_place(comm, total)
    x -= np.log(total, out=total)
    return x


def classes_before(layer: Layer) -> int | None:
    """Return how many classes ranks before this one have, if `layer` gives the classes of a rank, else None."""
    if layer.attributes.get("forward") != "log_softmax":
        return None
    return int(layer.attributes["cuts"][layer.attributes["rank"]])


def axis_of(layer: Layer, axis: int) -> int:
    """Return the array axis of a sample axis: samples are the last axis of images, else the first."""
    return axis if len(layer.input_shape) >= 3 else axis + 1


def copied(saved: Saved, x: Array) -> Array:
    """Return a contiguous copy."""
    y = saved.array(x.shape, x.dtype)
    y[...] = x
    return y
