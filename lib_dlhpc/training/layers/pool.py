"""Pools: the largest or the mean element of windows, or of all space."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.layers.kept import Array, Kept, Tensors, parts
from lib_dlhpc.training.layers.windows import taps, whole


class MaxPool:
    """The largest element of each window; its gradient goes to the first that is as large."""

    def __init__(self, layer: Layer) -> None:
        self.output = layer.output_shape[1:]
        self.taps = taps(layer.input_shape[1:], whole(self.output), layer.attributes)

    def forward(self, weights: Tensors, kept: Kept, x: Array) -> Array:
        """Return y of shape (channels, *space, batch)."""
        y = kept.array((len(x), *self.output, x.shape[-1]), x.dtype)
        y.fill(-np.inf)
        for part in parts(x):
            for tap in self.taps:
                most = y[part][tap.here]
                np.maximum(most, x[part][tap.there], out=most)
        kept.values.update(x=x, y=y)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, kept: Kept, dy: Array) -> Any:
        """Return dx; what one tap was given is no longer there for the next."""
        x, y = kept.values["x"], kept.values["y"]
        dx = kept.array(x.shape, dy.dtype)
        dx.fill(0)
        for part in parts(x):
            for tap in self.taps:
                left = dy[part][tap.here]
                given = left * (x[part][tap.there] == y[part][tap.here])
                dx[part][tap.there] += given
                left -= given
        return dx


class AvgPool:
    """The mean of each window, zeros of the padding included."""

    def __init__(self, layer: Layer) -> None:
        self.output = layer.output_shape[1:]
        self.taps = taps(layer.input_shape[1:], whole(self.output), layer.attributes)

    def forward(self, weights: Tensors, kept: Kept, x: Array) -> Array:
        """Return y of shape (channels, *space, batch)."""
        y = kept.array((len(x), *self.output, x.shape[-1]), x.dtype)
        y.fill(0)
        for part in parts(x):
            for tap in self.taps:
                y[part][tap.here] += x[part][tap.there]
        y /= len(self.taps)
        kept.values["shape"] = x.shape
        return y

    def backward(self, weights: Tensors, gradients: Tensors, kept: Kept, dy: Array) -> Any:
        """Return dx."""
        dx = kept.array(kept.values["shape"], dy.dtype)
        dx.fill(0)
        dy /= len(self.taps)
        for part in parts(dx):
            for tap in self.taps:
                dx[part][tap.there] += dy[part][tap.here]
        return dx


class GlobalAvgPool:
    """The mean of each channel over space: (channels, *space, batch) -> (batch, channels)."""

    def __init__(self, layer: Layer) -> None:
        self.positions = prod(layer.input_shape[1:])

    def forward(self, weights: Tensors, kept: Kept, x: Array) -> Array:
        """Return y of shape (batch, channels)."""
        kept.values["shape"] = x.shape
        return x.reshape(len(x), self.positions, -1).mean(axis=1).T

    def backward(self, weights: Tensors, gradients: Tensors, kept: Kept, dy: Array) -> Any:
        """Return dx: every position gets the same share."""
        shape = kept.values["shape"]
        dx = kept.array((len(dy.T), self.positions, len(dy)), dy.dtype)
        dx[...] = (dy.T / dy.dtype.type(self.positions))[:, None]
        return dx.reshape(shape)
