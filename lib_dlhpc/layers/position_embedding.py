"""Position embedding: a learned vector added at each position."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors
from lib_dlhpc.layers.base.slices import part_of, tokens_of

SPREAD = 0.02  # of the initial numbers (Radford et al. 2018, section 4.1)


class PositionEmbedding(Kind):
    """A learned row added at each position."""

    backward_reads = frozenset()
    sequence = True
    dimensions = (2,)

    @staticmethod
    def describe(site: Site, positions: int = 0, keep: bool = False) -> Counts:
        """Return the counts; positions: the length of the table, by default that of the sequence.

        keep = true: the output is stored for backward.
        """
        shape = site.at_least(2)
        rows = positions or shape[0]
        if rows < shape[0]:
            raise SpecError(
                f"{site.name}: positions = {rows} is fewer than the sequence's {shape[0]}."
            )
        return Counts(
            shape,
            parameters=rows * shape[-1],
            stored=prod(shape) * keep,
            attributes={"positions": rows},
        )

    def __init__(self, layer: Layer) -> None:
        self.shapes: Shapes = {"weight": (layer.attributes["positions"], layer.input_shape[-1])}
        self.rows = None  # of the table, where this rank has some tokens of the sequence
        if tokens := tokens_of(layer):
            mine = part_of(np.arange(layer.attributes["sequence"]), tokens)
            self.rows = part_of(mine, layer.attributes.get("elements"))

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Small normal numbers."""
        weights["weight"][...] = rng.normal(0, SPREAD, weights["weight"].shape)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, shaped as x."""
        y = x if saved.inplace else saved.array(x.shape, x.dtype)
        return np.add(x, weights["weight"][self._own(x)], out=y)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx = dy."""
        gradients["weight"].fill(0)
        gradients["weight"][self._own(dy)] = np.sum(dy, axis=0)
        return dy

    def _own(self, x: Array) -> Any:
        return slice(x.shape[1]) if self.rows is None else self.rows
