"""The largest element of each window."""

from math import inf
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.kind import Layer
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors, parts
from lib_dlhpc.layers.base.windows import Pool


class MaxPool(Pool):
    """The largest element of each window; the gradient goes to the first of equal ones."""

    padding_value = -inf

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        sizes = zip(layer.attributes["stride"], layer.attributes["kernel"], strict=True)
        self.apart = all(
            stride >= width for stride, width in sizes
        )  # an input is in one window at most

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
                if self.apart:
                    dx[part][tap.there] = given
                else:
                    dx[part][tap.there] += given
                left -= given
        return dx
