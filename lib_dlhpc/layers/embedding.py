"""Embedding: a table lookup, a vector of features for each token of the input."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors

SPREAD = 0.02  # of the initial numbers (Radford et al. 2018, section 4.1)


class Embedding(Kind):
    """A row of features for each token; zeros for tokens whose rows another rank has.

    A tied one has no table: it uses another embedding's, and can be priced, not trained.
    """

    backward_reads = frozenset()
    lookup = True
    tensor = "table"
    dimensions = (1,)

    @staticmethod
    def describe(
        site: Site, vocabulary: int, features: int, keep: bool = False, tied: str = ""
    ) -> Counts:
        """Return the counts; keep = true: the output is stored for backward. tied: the embedding of the same table."""
        shape, weights = site.at_least(1), vocabulary * features
        site.check_tied(tied, weights)
        return Counts(
            (*shape, features),
            parameters=0 if tied else weights,
            stored=prod(shape) * features * keep,
            attributes={"vocabulary": vocabulary, "features": features}
            | ({"tied": tied} if tied else {}),
        )

    def __init__(self, layer: Layer) -> None:
        self.shapes: Shapes = {
            "weight": (layer.attributes["vocabulary"], layer.attributes["features"])
        }
        axis, ranges = layer.attributes.get("part", {}).get("weight", (1, ()))
        self.rows = ranges[0] if axis == 0 else None  # of the full table
        self.tied = False  # set by the network if a dense layer adds to the gradient first

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Small normal numbers."""
        weights["weight"][...] = rng.normal(0, SPREAD, weights["weight"].shape)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (*x.shape, features)."""
        table = weights["weight"]
        y = saved.array((*x.shape, table.shape[1]), table.dtype)
        if self.rows is None:
            saved.values["x"] = x
            return np.take(table, x, axis=0, out=y)
        first, last = self.rows
        saved.values["x"], saved.values["here"] = x - first, (x >= first) & (x < last)
        np.take(table, saved.values["x"], axis=0, out=y, mode="clip")
        y[~saved.values["here"]] = 0
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Accumulate the gradient of each row over its uses; tokens have no gradient."""
        if not self.tied:
            gradients["weight"].fill(0)
        x, rows = saved.values["x"].ravel(), dy.reshape(-1, dy.shape[-1])
        if self.rows is not None:
            here = saved.values["here"].ravel()
            x, rows = x[here], rows[here]
        np.add.at(gradients["weight"], x, rows)
