"""The same elements in one dimension."""

from math import prod
from typing import Any

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors


class Flatten(Kind):
    """All elements of a sample in a row: (channels, *space, batch) -> (batch, elements), a view."""

    view = True
    tensor = "features"

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts."""
        return Counts((prod(site.shape),), stored=0)

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
