"""Dense: a product with a weight matrix at each position."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors
from lib_dlhpc.layers.base.slices import own_shapes


class Dense(Kind):
    """y = x W + b; x of shape (..., inputs), W (inputs, features).

    A tied layer has no matrix: it uses the embedding's, transposed, and adds to its gradient.
    """

    backward_reads = frozenset({"input"})
    product = splits_backward = True
    tensor = "product"

    @staticmethod
    def describe(
        site: Site,
        features: int,
        bias: bool = True,
        keep: bool = True,
        fp32: bool = False,
        tied: str = "",
    ) -> Counts:
        """Return the counts.

        keep = false: only a dropout or a sum reads the output, so it is not stored for backward.
        fp32 = true: the output is stored in 4 bytes an element, independent of the precision.
        tied: the embedding whose transposed weights this layer shares, or the dense layer whose weights.
        """
        shape = site.at_least(1)
        if len(shape) > 2:
            raise SpecError(
                f"{site.name}: a dense layer cannot read shape {shape}; flatten it first."
            )
        weights, output = shape[-1] * features, (*shape[:-1], features)
        site.check_tied(tied, weights)
        return Counts(
            output,
            parameters=(0 if tied else weights) + features * bias,
            forward_flop=2.0 * weights * prod(shape[:-1]),
            stored=prod(output) if keep and not fp32 else 0,
            mask_bytes=4 * prod(output) if fp32 else 0,
            attributes={"features": features, "bias": bias, "tied": tied},
        )

    @classmethod
    def operands(cls, layer: Layer) -> tuple[float, float]:
        """Return the elements of the input, and of the gradient of the output."""
        return float(prod(layer.input_shape)), float(prod(layer.output_shape))

    def __init__(self, layer: Layer) -> None:
        self.inputs, self.features = layer.input_shape[-1], layer.attributes["features"]
        self.tied = bool(layer.attributes["tied"])
        self.shapes: Shapes = {} if self.tied else {"weight": (self.inputs, self.features)}
        if layer.attributes["bias"]:
            self.shapes["bias"] = (self.features,)
        self.shapes = own_shapes(layer, self.shapes)

    def start(self, weights: Tensors, rng: Rng) -> None:
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
        """Return dx."""
        self.weight_gradient(gradients, saved, dy)
        return self.input_gradient(weights, saved, dy)

    def weight_gradient(self, gradients: Tensors, saved: Saved, dy: Array) -> None:
        """Write dW = x^T dy, and db."""
        rows, x = _rows(dy), _rows(saved.values["x"])
        if self.tied:
            gradients["weight"] += rows.T @ x
        else:
            np.matmul(x.T, rows, out=gradients["weight"])
        if "bias" in gradients:
            np.sum(rows, axis=0, out=gradients["bias"])

    def input_gradient(self, weights: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx = dy W^T."""
        if not saved.wants_dx:
            return None
        dx = saved.array((*dy.shape[:-1], self.inputs), dy.dtype)
        np.matmul(_rows(dy), self._matrix(weights).T, out=_rows(dx))
        return dx

    def _matrix(self, weights: Tensors) -> Array:
        return weights["weight"].T if self.tied else weights["weight"]


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])
