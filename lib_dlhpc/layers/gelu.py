"""GELU: x times the normal distribution function at x."""

from math import pi, sqrt
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Kind, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors, chunks

ROOT = sqrt(2 / pi)  # a Python float, so that float32 arrays stay float32


class Gelu(Kind):
    """x times the normal distribution function, in its tanh form (Hendrycks and Gimpel 2016, section 2)."""

    backward_reads = frozenset({"input"})

    elementwise = True
    tensor, sequence, spatial = "features", True, "rows"

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts; it stores its output beside its input."""
        return Counts(site.shape)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y; x is saved, as y does not determine it."""
        saved.values["x"] = x
        y = saved.array(x.shape, x.dtype)
        for up, own in chunks(x, y):
            own[...] = gelu(up)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        for down, x in chunks(dy, saved.values["x"]):
            down *= slope(x)
        return dy


def gelu(x: Array) -> Array:
    """Return GELU(x)."""
    return x * (0.5 * (1 + _tanh(x)))


def slope(x: Array) -> Array:
    """Return the derivative of GELU at x."""
    t = _tanh(x)
    inner = ROOT * (1 + 3 * 0.044715 * x * x)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner


def _tanh(x: Array) -> Array:
    return np.tanh(ROOT * (x + 0.044715 * x * x * x))
