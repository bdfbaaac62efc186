"""Products in pieces: one piece of rows is exchanged while the next is computed (costs/async_tp.py).

A product posts each piece of its output, or of the gradient of its input, and the exchange that follows waits for all;
an exchange before a product posts all pieces, and the product waits for each. Pieces travel one after another, in a
communicator of their own, context.groups["pieces"], so that their order is the same on all ranks.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lib_dlhpc.costs.async_tp import GATHERED, cut_of
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors
from lib_dlhpc.layout.cuts import even
from lib_dlhpc.schedules.ring_collectives import Rounds, allgather, reduce_scatter
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.training.collectives import PIECE
from lib_dlhpc.training.messages.exchange import Exchange
from lib_dlhpc.training.ordered_collectives import DeferredCollective, InOrder

GROUP = "pieces"  # of communicators


def in_pieces(model: Model, layers: Sequence[Any], many: int) -> list[Any]:
    """Return the passes of layers, with products and exchanges in pieces where they are cut."""
    built_layers, how = list(layers), cut_of(model, many, "all")
    if not how:
        return built_layers
    ways = ("forward", "backward")
    pairs = {
        (way, e): p for way in ways for p, e in (*how.before[way].items(), *how.after[way].items())
    }
    for _, number in pairs:
        built_layers[number] = CutExchange(model.layers[number], many)
    for number in {*pairs.values()}:
        before, after = (
            {way: built_layers[exchanges[way][number]] for way in ways if number in exchanges[way]}
            for exchanges in (how.before, how.after)
        )
        built_layers[number] = CutProduct(layers[number], many, before, after)
    return built_layers


class CutExchange(Exchange):
    """An exchange in pieces of positions; where nothing was posted, as of one rank, it passes its input on."""

    def __init__(self, layer: Layer, many: int) -> None:
        super().__init__(layer)
        self.many, self._stream = many, InOrder()
        self._numbers: list[int] = []  # of the pieces that are posted
        self._result: Array | None = None

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y; where a product reads it, pieces of it may yet arrive."""
        if self.ways == GATHERED:
            saved.values["part"] = x
        return self._carried_out(saved, x, self.ways[0], saved.inplace)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx; where a product reads it, pieces of it may yet arrive."""
        return self._carried_out(saved, dy, self.ways[1], True)

    def rows(self, x: Array, piece: int) -> list[slice]:
        """Return the rows of a piece along axis 1 of `turned(x)`: some of each rank's positions."""
        return [_piece(part, self.many, piece) for part in self.parts or [slice(0, x.shape[1])]]

    def turned(self, x: Array) -> Array:
        """Return x with the rows that are cut on axis 1: all, where ranks have no positions of their own."""
        return x if self.parts else x.reshape(1, -1, x.shape[-1])

    def post(self, saved: Saved, x: Array, piece: int) -> None:
        """Start the sum of a piece of x, which is overwritten, after all that was posted before."""
        comm = saved.context.groups.get(GROUP)
        if comm is None or comm.size == 1:
            return
        if self._result is None:
            shape = x[self._at(self.rank)].shape if self.parts else x.shape
            self._result = saved.array(shape, x.dtype) if self.parts else x
        whole = self.turned(x)
        rows = self.rows(whole, piece)
        if self.parts:
            self._start(partial(_scattered, comm, whole, rows, self._result, self._own(piece)))
        else:
            self._start(partial(_summed, comm, whole[0, rows[0]]))

    def progress(self) -> None:
        """Progress what is in flight."""
        self._stream.test()

    def wait(self, saved: Saved, size: int, piece: int = -1) -> None:
        """Wait for a piece, or for the last, of `size` B."""
        if self._numbers:
            with saved.context.communicates(f"piece of {self.name}", size):
                self._stream.wait(self._numbers[piece])
        if piece in (-1, self.many - 1):
            self._numbers = []

    def _carried_out(self, saved: Saved, x: Array, way: str, overwrite: bool) -> Array:
        comm = saved.context.groups.get(GROUP)
        if self._result is not None:  # a product has posted its pieces
            self.wait(saved, x.nbytes)
            result, self._result = self._result, None
            return result
        if way != "all_gather" or comm is None or comm.size == 1:
            return self._exchange(way, saved, x, overwrite)
        y = saved.array((len(x), self.parts[-1].stop, *x.shape[2:]), x.dtype)
        for piece in range(self.many):
            self._start(partial(_gathered, comm, x[:, self._own(piece)], y, self.rows(y, piece)))
        return y

    def _start(self, rounds: Any) -> None:
        self._numbers.append(self._stream.post(DeferredCollective(rounds)))

    def _own(self, piece: int) -> slice:
        """Return the rows of a piece in this rank's own part."""
        part = self.parts[self.rank]
        return _piece(slice(0, part.stop - part.start), self.many, piece)


class CutProduct:
    """A product in pieces; before, after: the exchange that gives its input and takes its output, by direction.

    In backward these are the gradients. `others`: what is added to the gradient of the input before it is exchanged,
    where several products read it.
    """

    def __init__(
        self,
        layer: Any,
        many: int,
        before: Mapping[str, CutExchange],
        after: Mapping[str, CutExchange],
    ) -> None:
        self.layer, self.many, self.before, self.after = layer, many, before, after
        self.takes = after["backward"].name if "backward" in after else ""
        self.others: Array | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y; pieces of it may be in flight."""
        if "forward" not in self.before and "forward" not in self.after:
            return self.layer.forward(weights, saved, x)
        y = saved.array((*x.shape[:-1], self.layer.features), x.dtype)
        self._each("forward", saved, x, y, partial(self.layer.forward, weights, saved))
        saved.values["x"] = x
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx; pieces of it may be in flight while the gradients of weights are computed."""
        dx = self.input_gradient(weights, saved, dy)
        self.layer.weight_gradient(gradients, saved, dy)
        return dx

    def input_gradient(self, weights: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx; pieces of it may be in flight."""
        if "backward" not in self.before and "backward" not in self.after:
            return self.layer.input_gradient(weights, saved, dy)
        dx = saved.array((*dy.shape[:-1], self.layer.inputs), dy.dtype)
        self._each("backward", saved, dy, dx, partial(self.layer.input_gradient, weights, saved))
        self.others = None
        return dx

    def _each(self, way: str, saved: Saved, x: Array, y: Array, product: Any) -> None:
        """Write y, the product of x, piece by piece."""
        gives, takes = self.before.get(way), self.after.get(way)
        shape = takes or gives
        assert shape is not None
        read, written = shape.turned(x), shape.turned(y)
        others = None if self.others is None else shape.turned(self.others)
        for piece in range(self.many):
            if gives is not None:
                gives.wait(saved, x.nbytes // self.many, piece)
            for rows in shape.rows(read, piece):
                written[:, rows] = product(read[:, rows])
                if others is not None:
                    written[:, rows] += others[:, rows]
            if takes is not None:
                takes.post(saved, y, piece)
                takes.progress()


def _piece(rows: slice, many: int, piece: int) -> slice:
    """Return one of `many` pieces of some rows, whose sizes differ by one at most."""
    first, last = even(rows.stop - rows.start, many)[piece]
    return slice(rows.start + first, rows.start + last)


def _summed(comm: Any, rows: Array) -> Rounds:
    """Allreduce rows in place, MPI_Allreduce's memory at a time; rows: contiguous."""
    from mpi4py import MPI

    flat = rows.reshape(-1)
    step = max(1, PIECE // flat.itemsize)
    for first in range(0, flat.size, step):
        yield [comm.Iallreduce(MPI.IN_PLACE, flat[first : first + step], MPI.SUM)]


def _scattered(comm: Any, x: Array, rows: list[slice], out: Array, rows_here: slice) -> Rounds:
    """Reduce-scatter the rows of each rank; the sum of this rank's is written to out[:, own]."""
    blocks = [x[:, part].flatten() for part in rows]
    yield from reduce_scatter(comm, [blocks])
    out[:, rows_here] = blocks[comm.rank].reshape(out[:, rows_here].shape)


def _gathered(comm: Any, shard: Array, y: Array, rows: list[slice]) -> Rounds:
    """All-gather the rows of each rank into y."""
    blocks = [np.empty(y[:, part].size, y.dtype) for part in rows]
    blocks[comm.rank][...] = np.ravel(shard)
    yield from allgather(comm, blocks)
    for part, block in zip(rows, blocks, strict=True):
        y[:, part] = block.reshape(y[:, part].shape)
