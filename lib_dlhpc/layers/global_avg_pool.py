"""The mean of each channel over space."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors


class GlobalAvgPool(Kind):
    """The mean of each channel over space: (channels, *space, batch) -> (batch, channels)."""

    backward_reads = frozenset()
    tensor = "features"
    dimensions = (3,)

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts."""
        return Counts(site.at_least(2)[:1])

    def __init__(self, layer: Layer) -> None:
        self.positions = prod(layer.input_shape[1:])

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (batch, channels)."""
        saved.values["shape"] = x.shape
        # A matrix product, as numpy's mean is far slower.
        share = np.full(self.positions, 1 / self.positions, x.dtype)
        return (share @ x.reshape(len(x), self.positions, x.shape[-1])).T

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx: every position gets the same share."""
        shape = saved.values["shape"]
        dx = saved.array((len(dy.T), self.positions, len(dy)), dy.dtype)
        dx[...] = (dy.T / dy.dtype.type(self.positions))[:, None]
        return dx.reshape(shape)
