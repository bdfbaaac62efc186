"""Layers that rearrange or add their inputs."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.layers.saved import Array, Saved, Tensors


class Flatten:
    """All elements of a sample in a row: (channels, *space, batch) -> (batch, elements), a view."""

    def __init__(self, layer: Layer) -> None:
        self.images = len(layer.input_shape) >= 3
        self.elements = prod(layer.input_shape)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (batch, elements)."""
        saved.values["shape"] = x.shape
        return x.reshape(self.elements, -1).T if self.images else x.reshape(-1, self.elements)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        shape = saved.values["shape"]
        if not self.images:
            return dy.reshape(shape)
        dx = saved.array(shape, dy.dtype)
        dx.reshape(self.elements, -1)[...] = dy.T
        return dx


class Add:
    """The sum of its inputs: a residual connection."""

    def __init__(self, layer: Layer) -> None:
        pass

    def forward(self, weights: Tensors, saved: Saved, *x: Array) -> Array:
        """Return y."""
        y = saved.array(x[0].shape, x[0].dtype)
        np.add(x[0], x[1] if len(x) > 1 else 0, out=y)
        for more in x[2:]:
            y += more
        saved.values["inputs"] = len(x)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return the gradient of each input, as separate arrays that may be overwritten."""
        copies = [saved.array(dy.shape, dy.dtype) for _ in range(saved.values["inputs"] - 1)]
        for copy in copies:
            copy[...] = dy
        return (dy, *copies)


class Concat:
    """Its inputs, concatenated along the channels."""

    def __init__(self, layer: Layer) -> None:
        self.axis = 0 if len(layer.output_shape) >= 3 else 1

    def forward(self, weights: Tensors, saved: Saved, *x: Array) -> Array:
        """Return y."""
        saved.values["ends"] = np.cumsum([part.shape[self.axis] for part in x])[:-1]
        shape = list(x[0].shape)
        shape[self.axis] = sum(part.shape[self.axis] for part in x)
        return np.concatenate(x, axis=self.axis, out=saved.array(tuple(shape), x[0].dtype))

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return the gradient of each input."""
        parts = np.split(dy, saved.values["ends"], axis=self.axis)
        return tuple(np.ascontiguousarray(part) for part in parts)
