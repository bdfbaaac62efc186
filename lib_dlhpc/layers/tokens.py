"""Positions of an image as a sequence, after learned tokens such as that of the class."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors


class Tokens(Kind):
    """(channels, height, width) as (positions, channels), row by row, after learned vectors (Dosovitskiy et al. 2021,
    equation 1).
    """

    backward_reads = frozenset()
    dimensions = (3,)

    @staticmethod
    def describe(site: Site, learned: int = 0) -> Counts:
        """Return the counts; learned: vectors before those of the image."""
        channels, *space = site.at_least(2)
        return Counts(
            (learned + prod(space), channels),
            parameters=learned * channels,
            attributes={"learned": learned},
        )

    def __init__(self, layer: Layer) -> None:
        self.learned, self.shape = layer.attributes["learned"], layer.input_shape
        self.shapes: Shapes = {"vectors": (self.learned, self.shape[0])} if self.learned else {}

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Vectors of zeros (Dosovitskiy et al. 2021, published code)."""
        for weight in weights.values():
            weight.fill(0)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (batch, positions, channels)."""
        flat = x.reshape(self.shape[0], prod(self.shape[1:]), -1).transpose(2, 1, 0)
        y = saved.array((len(flat), self.learned + flat.shape[1], self.shape[0]), x.dtype)
        y[:, self.learned :] = flat
        if self.learned:
            y[:, : self.learned] = weights["vectors"]
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        if self.learned:
            np.sum(dy[:, : self.learned], axis=0, out=gradients["vectors"])
        dx = saved.array((*self.shape, len(dy)), dy.dtype)
        dx[...] = dy[:, self.learned :].transpose(2, 1, 0).reshape(dx.shape)
        return dx
