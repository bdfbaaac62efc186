"""The largest element of each window."""

from math import inf
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors, parts
from lib_dlhpc.layers.base.windows import Size, pooled, taps, whole


class MaxPool(Kind):
    """The largest element of each window; the gradient goes to the first of equal ones."""

    padding_value = -inf
    tensor, spatial = "features", "windows"
    dimensions = (3,)

    @staticmethod
    def describe(site: Site, kernel: Size, stride: Size | None = None, padding: Size = 0) -> Counts:
        """Return the counts; the default stride is the kernel size."""
        return pooled(site, kernel, stride, padding)

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
