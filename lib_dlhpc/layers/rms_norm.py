"""RMS normalization: each position over its features, without a mean, with a learned scale."""

from typing import Any

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors

EPSILON = 1e-5


class RmsNorm(Kind):
    """Each position divided by the root mean square of its features, then scaled (Zhang and Sennrich 2019, eq. 4)."""

    backward_reads = frozenset({"input"})
    light = True
    sequence = True
    dimensions = (1, 2)

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts."""
        return Counts(site.shape, parameters=site.shape[-1])

    def __init__(self, layer: Layer) -> None:
        self.shapes: Shapes = {"scale": (layer.input_shape[-1],)}

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Scale 1."""
        weights["scale"].fill(1)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, shaped as x."""
        y = saved.array(x.shape, x.dtype)
        square = _dots(x, x) / x.dtype.type(x.shape[-1])
        inverse = 1 / np.sqrt(square + x.dtype.type(EPSILON))
        saved.values.update(x=x, inverse=inverse)
        np.multiply(x, inverse, out=y)
        y *= weights["scale"]
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        features = dy.shape[-1]
        normal = saved.array(dy.shape, dy.dtype)
        np.multiply(saved.values["x"], saved.values["inverse"], out=normal)
        flat, flat_normal = dy.reshape(-1, features), normal.reshape(-1, features)
        np.einsum("ni,ni->i", flat, flat_normal, out=gradients["scale"])
        dy *= weights["scale"]
        normal *= _dots(dy, normal) / dy.dtype.type(features)
        dy -= normal
        dy *= saved.values["inverse"]
        return dy


def _dots(a: Array, b: Array) -> Array:
    """Return the sum of a * b over the features, without a full-size temporary array."""
    return np.einsum("...i,...i->...", a, b)[..., None]
