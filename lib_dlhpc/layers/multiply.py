"""Product, element by element, of two inputs; the second may have one element for many of the first."""

from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors


class Multiply(Kind):
    """x times a factor, such as that of a gate (Hu et al. 2018, "Squeeze-and-excitation networks", equation 4)."""

    backward_reads = frozenset({"input"})
    tensor, sequence = "features", True
    several_inputs = True
    dimensions = (1, 2)

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts; each dimension of the factor is that of x, or 1."""
        x, *others = site.shapes
        fits = len(others) == 1 and len(others[0]) == len(x)
        if not fits or any(b not in (a, 1) for a, b in zip(x, others[0], strict=True)):
            raise SpecError(
                f"{site.name}: reads {', '.join(map(str, site.shapes))}; legal: two inputs, the second as long as the"
                " first in each dimension, or 1."
            )
        return Counts(x)

    def forward(self, weights: Tensors, saved: Saved, *inputs: Array) -> Array:
        """Return y = x * factor."""
        x, factor = inputs
        saved.values.update(x=x, factor=factor)
        return np.multiply(x, factor, out=saved.array(x.shape, x.dtype))

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return the gradients of x and of the factor."""
        x, factor = saved.values["x"], saved.values["factor"]
        summed = tuple(axis for axis in range(1, x.ndim) if factor.shape[axis] < x.shape[axis])
        product = dy * x
        dfactor = product.sum(axis=summed, keepdims=True) if summed else product
        return np.multiply(dy, factor, out=dy), dfactor
