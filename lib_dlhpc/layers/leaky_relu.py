"""x where x > 0, slope * x elsewhere, in place."""

from typing import Any

import numpy as np

from lib_dlhpc.layers.base.elementwise import InPlace, in_place
from lib_dlhpc.layers.base.kind import Counts, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors, chunks


class LeakyRelu(InPlace):
    """x where x > 0, slope * x elsewhere, in place."""

    @staticmethod
    def describe(site: Site, slope: float = 0.2) -> Counts:
        """Return the counts; it works in place."""
        return Counts(site.shape, stored=0, attributes={"slope": slope})

    def __init__(self, layer: Layer) -> None:
        self.slope = layer.attributes["slope"]

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y."""
        y = saved.values["y"] = in_place(saved, x)
        for up, own in chunks(x, y):
            np.multiply(up, _slopes(up, self.slope), out=own)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx; the sign of y is that of x."""
        y = saved.values["y"]
        for down, own in chunks(dy, y):
            down *= _slopes(own, self.slope)
        return dy


def _slopes(x: Array, slope: float) -> Array:
    return np.where(x > 0, x.dtype.type(1), x.dtype.type(slope))
