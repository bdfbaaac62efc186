"""Receive: the output of a layer in another stage of the pipeline."""

from typing import Any

from lib_dlhpc.layers.base.kind import Kind
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors


class Receive(Kind):
    """A copy of the received activation: the next message may reuse the buffer while this one is still read."""

    backward_reads = frozenset()
    message = stand_in = True

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, in memory of its own."""
        y = saved.array(x.shape, x.dtype)
        y[...] = x
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx, to be sent to the stage that x came from."""
        return dy
