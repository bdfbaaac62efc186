"""Dense: a product with a weight matrix at each position."""

from typing import Any

import numpy as np

from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.layers.saved import Array, Saved, Shapes, Tensors
from lib_dlhpc.training.layers.slices import own_shapes


class Dense:
    """y = x W + b; x of shape (..., inputs), W (inputs, features).

    A tied layer has no matrix: it uses the embedding's, transposed, and adds to its gradient.
    """

    def __init__(self, layer: Layer) -> None:
        self.inputs, self.features = layer.input_shape[-1], layer.attributes["features"]
        self.tied = bool(layer.attributes["tied"])
        self.shapes: Shapes = {} if self.tied else {"weight": (self.inputs, self.features)}
        if layer.attributes["bias"]:
            self.shapes["bias"] = (self.features,)
        self.shapes = own_shapes(layer, self.shapes)

    def start(self, weights: Tensors, rng: np.random.Generator) -> None:
        """Initialize the weights: He et al. 2015, equation 10."""
        if not self.tied:
            weights["weight"][...] = rng.normal(
                0, np.sqrt(2 / self.inputs), weights["weight"].shape
            )
        if "bias" in weights:
            weights["bias"].fill(0)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (..., features)."""
        saved.values["x"] = x
        y = saved.array((*x.shape[:-1], self.features), x.dtype)
        np.matmul(_rows(x), self._matrix(weights), out=_rows(y))
        if "bias" in weights:
            y += weights["bias"]
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx = dy W^T."""
        rows, x = _rows(dy), _rows(saved.values["x"])
        if self.tied:
            gradients["weight"] += rows.T @ x
        else:
            np.matmul(x.T, rows, out=gradients["weight"])
        if "bias" in weights:
            np.sum(rows, axis=0, out=gradients["bias"])
        if not saved.wants_dx:
            return None
        dx = saved.array((*dy.shape[:-1], self.inputs), dy.dtype)
        np.matmul(rows, self._matrix(weights).T, out=_rows(dx))
        return dx

    def _matrix(self, weights: Tensors) -> Array:
        return weights["weight"].T if self.tied else weights["weight"]


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])
