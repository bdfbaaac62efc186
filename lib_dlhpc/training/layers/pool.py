"""Pooling: maximum or mean of windows, or of all space."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.layers.saved import Array, Saved, Tensors, parts
from lib_dlhpc.training.layers.windows import taps, whole


class MaxPool:
    """The largest element of each window; the gradient goes to the first of equal ones."""

    def __init__(self, layer: Layer) -> None:
        self.output = layer.output_shape[1:]
        self.taps = taps(layer.input_shape[1:], whole(self.output), layer.attributes)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (channels, *space, batch)."""
        y = saved.array((len(x), *self.output, x.shape[-1]), x.dtype)
        y.fill(-np.inf)
        for part in parts(x):
            for tap in self.taps:
                most = y[part][tap.here]
                np.maximum(most, x[part][tap.there], out=most)
        saved.values.update(x=x, y=y)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx; a gradient that one tap has taken is removed for the next."""
        x, y = saved.values["x"], saved.values["y"]
        dx = saved.array(x.shape, dy.dtype)
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

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (channels, *space, batch)."""
        y = saved.array((len(x), *self.output, x.shape[-1]), x.dtype)
        y.fill(0)
        for part in parts(x):
            for tap in self.taps:
                y[part][tap.here] += x[part][tap.there]
        y /= len(self.taps)
        saved.values["shape"] = x.shape
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        dx = saved.array(saved.values["shape"], dy.dtype)
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

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (batch, channels)."""
        saved.values["shape"] = x.shape
        return x.reshape(len(x), self.positions, -1).mean(axis=1).T

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx: every position gets the same share."""
        shape = saved.values["shape"]
        dx = saved.array((len(dy.T), self.positions, len(dy)), dy.dtype)
        dx[...] = (dy.T / dy.dtype.type(self.positions))[:, None]
        return dx.reshape(shape)
