"""Pools: the largest or the mean element of windows, or of all space."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.spec.model import Layer
from lib_dlhpc.train.layers.kept import Array, Kept, Tensors
from lib_dlhpc.train.layers.windows import taps, whole


class MaxPool:
    """The largest element of each window; its gradient goes to the first that is as large."""

    def __init__(self, layer: Layer) -> None:
        self.output = layer.output_shape[1:]
        self.taps = taps(layer.input_shape[1:], whole(self.output), layer.attributes)

    def forward(self, weights: Tensors, kept: Kept, x: Array) -> Array:
        """Return y of shape (channels, *space, batch), and keep which tap it came through."""
        y = kept.array("y", (len(x), *self.output, x.shape[-1]), x.dtype)
        best = kept.array("best", y.shape, np.min_scalar_type(len(self.taps)))
        y.fill(-np.inf)
        for tap in self.taps:
            seen, most = x[tap.there], y[tap.here]
            np.copyto(best[tap.here], tap.number, where=seen > most)
            np.maximum(most, seen, out=most)
        kept.values["shape"] = x.shape
        return y

    def backward(self, weights: Tensors, gradients: Tensors, kept: Kept, dy: Array) -> Any:
        """Return dx."""
        dx = np.zeros(kept.values["shape"], dy.dtype)
        best = kept.array("best", dy.shape, np.min_scalar_type(len(self.taps)))
        for tap in self.taps:
            through = best[tap.here] == tap.number
            dx[tap.there] += dy[tap.here] * through
        return dx


class AvgPool:
    """The mean of each window, zeros of the padding included."""

    def __init__(self, layer: Layer) -> None:
        self.output = layer.output_shape[1:]
        self.taps = taps(layer.input_shape[1:], whole(self.output), layer.attributes)

    def forward(self, weights: Tensors, kept: Kept, x: Array) -> Array:
        """Return y of shape (channels, *space, batch)."""
        y = kept.array("y", (len(x), *self.output, x.shape[-1]), x.dtype)
        y.fill(0)
        for tap in self.taps:
            y[tap.here] += x[tap.there]
        y /= len(self.taps)
        kept.values["shape"] = x.shape
        return y

    def backward(self, weights: Tensors, gradients: Tensors, kept: Kept, dy: Array) -> Any:
        """Return dx."""
        dx = np.zeros(kept.values["shape"], dy.dtype)
        dy /= len(self.taps)
        for tap in self.taps:
            dx[tap.there] += dy[tap.here]
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
        dx = np.empty((len(dy.T), self.positions, len(dy)), dy.dtype)
        dx[...] = (dy.T / dy.dtype.type(self.positions))[:, None]
        return dx.reshape(shape)
