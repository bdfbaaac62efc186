"""Concatenation along the channels."""

from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors


class Concat(Kind):
    """Its inputs, concatenated along the channels, copied into one array."""

    backward_reads = frozenset()
    spatial = "rows"
    several_inputs = True

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts."""
        shapes = site.shapes
        if len({shape[1:] for shape in shapes}) > 1:
            raise SpecError(
                f"{site.name}: cannot concatenate shapes {', '.join(map(str, shapes))}."
            )
        return Counts((sum(shape[0] for shape in shapes), *shapes[0][1:]))

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
