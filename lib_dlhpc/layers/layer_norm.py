"""Layer normalization: each position over its features, by default with a learned scale and shift."""

from typing import Any

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors

EPSILON = 1e-5


class LayerNorm(Kind):
    """Each position with mean 0 and variance 1 over its features, then scaled and shifted (Ba et al. 2016)."""

    backward_reads = frozenset({"input"})
    light = True
    sequence = True
    dimensions = (1, 2)

    @staticmethod
    def describe(site: Site, bias: bool = True, scale: bool = True) -> Counts:
        """Return the counts; bias = false: no shift; scale = false: no scale."""
        return Counts(
            site.shape,
            parameters=(scale + bias) * site.shape[-1],
            attributes={"bias": bias, "scale": scale},
        )

    def __init__(self, layer: Layer) -> None:
        features = layer.input_shape[-1]
        learned = {"scale": layer.attributes["scale"], "shift": layer.attributes["bias"]}
        self.shapes: Shapes = {name: (features,) for name, there in learned.items() if there}

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Scale 1, shift 0."""
        if "scale" in weights:
            weights["scale"].fill(1)
        if "shift" in weights:
            weights["shift"].fill(0)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, shaped as x."""
        y = saved.array(x.shape, x.dtype)
        mean = x.mean(axis=-1, keepdims=True)
        np.subtract(x, mean, out=y)
        variance = _dots(y, y) / x.dtype.type(x.shape[-1])
        inverse = 1 / np.sqrt(variance + x.dtype.type(EPSILON))
        saved.values.update(x=x, mean=mean, inverse=inverse)
        y *= inverse
        if "scale" in weights:
            y *= weights["scale"]
        if "shift" in weights:
            y += weights["shift"]
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        values, others = saved.values, tuple(range(dy.ndim - 1))
        normal = saved.array(dy.shape, dy.dtype)
        np.subtract(values["x"], values["mean"], out=normal)
        normal *= values["inverse"]
        if "shift" in weights:
            np.sum(dy, axis=others, out=gradients["shift"])
        features = dy.shape[-1]
        if "scale" in weights:
            flat, flat_normal = dy.reshape(-1, features), normal.reshape(-1, features)
            np.einsum("ni,ni->i", flat, flat_normal, out=gradients["scale"])
            dy *= weights["scale"]
        normal *= _dots(dy, normal) / dy.dtype.type(features)
        dy -= np.mean(dy, axis=-1, keepdims=True)
        dy -= normal
        dy *= values["inverse"]
        return dy


def _dots(a: Array, b: Array) -> Array:
    """Return the sum of a * b over the features, without a full-size temporary array."""
    return np.einsum("...i,...i->...", a, b)[..., None]
