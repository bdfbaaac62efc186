"""Layers of language models: embeddings and self-attention over (batch, positions, features)."""

from typing import Any

import numpy as np

from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.layers.kept import Array, Kept, Shapes, Tensors
from lib_dlhpc.training.layers.pointwise import stream_of, survivors

SPREAD = 0.02  # of the first embeddings (Radford et al. 2018, section 4.1)


class Embedding:
    """A row of features for each whole number; zeros for the numbers whose rows another rank has."""

    def __init__(self, layer: Layer) -> None:
        self.shapes: Shapes = {
            "weight": (layer.attributes["vocabulary"], layer.attributes["features"])
        }
        axis, ranges = layer.attributes.get("part", {}).get("weight", (1, ()))
        self.rows = ranges[0] if axis == 0 else None  # of the whole table
        self.tied = False  # set by the network where a dense layer adds to the gradient before

    def start(self, weights: Tensors, rng: np.random.Generator) -> None:
        """Small normal numbers."""
        weights["weight"][...] = rng.normal(0, SPREAD, weights["weight"].shape)

    def forward(self, weights: Tensors, kept: Kept, x: Array) -> Array:
        """Return y of shape (*x.shape, features)."""
        table = weights["weight"]
        y = kept.array((*x.shape, table.shape[1]), table.dtype)
        if self.rows is None:
            kept.values["x"] = x
            return np.take(table, x, axis=0, out=y)
        first, last = self.rows
        kept.values["x"], kept.values["here"] = x - first, (x >= first) & (x < last)
        np.take(table, kept.values["x"], axis=0, out=y, mode="clip")
        y[~kept.values["here"]] = 0
        return y

    def backward(self, weights: Tensors, gradients: Tensors, kept: Kept, dy: Array) -> Any:
        """Add what each row's uses give; there is no gradient of whole numbers."""
        if not self.tied:
            gradients["weight"].fill(0)
        x, rows = kept.values["x"].ravel(), dy.reshape(-1, dy.shape[-1])
        if self.rows is not None:
            here = kept.values["here"].ravel()
            x, rows = x[here], rows[here]
        np.add.at(gradients["weight"], x, rows)


class PositionEmbedding:
    """A learned row added at each position."""

    def __init__(self, layer: Layer) -> None:
        self.shapes: Shapes = {"weight": (layer.attributes["positions"], layer.input_shape[-1])}

    def start(self, weights: Tensors, rng: np.random.Generator) -> None:
        """Small normal numbers."""
        weights["weight"][...] = rng.normal(0, SPREAD, weights["weight"].shape)

    def forward(self, weights: Tensors, kept: Kept, x: Array) -> Array:
        """Return y, shaped as x."""
        y = x if kept.inplace else kept.array(x.shape, x.dtype)
        return np.add(x, weights["weight"][: x.shape[1]], out=y)

    def backward(self, weights: Tensors, gradients: Tensors, kept: Kept, dy: Array) -> Any:
        """Return dx = dy."""
        gradients["weight"][dy.shape[1] :] = 0
        np.sum(dy, axis=0, out=gradients["weight"][: dy.shape[1]])
        return dy


class Attention:
    """softmax(q k^T / sqrt(d)) v for each head (Vaswani et al. 2017, equation 1).

    The input holds queries, keys and values side by side: (batch, positions, 3 * features).
    """

    def __init__(self, layer: Layer) -> None:
        options = layer.attributes
        self.heads, self.causal, self.rate = options["heads"], options["causal"], options["dropout"]
        self.features, self.stream = layer.output_shape[-1], stream_of(layer)
        scores = options.get("scores")  # the heads that this rank has of the whole's
        self.elements = (0, (scores,)) if scores else None
        self.all_heads = layer.attributes.get("whole", layer).attributes["heads"]

    def forward(self, weights: Tensors, kept: Kept, x: Array) -> Array:
        """Return y of shape (batch, positions, features)."""
        q, k, v = self._heads(x)
        p = kept.array((*q.shape[:-1], q.shape[-2]), x.dtype)
        np.matmul(q, k.swapaxes(-1, -2), out=p)
        p *= x.dtype.type(1 / np.sqrt(self.features // self.heads))
        if self.causal:
            p[..., np.triu(np.ones(p.shape[-2:], dtype=np.bool_), 1)] = -np.inf
        p -= p.max(axis=-1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=-1, keepdims=True)
        mask = None
        if self.rate and kept.context.training:
            shape = (p.shape[0], self.all_heads, *p.shape[2:])
            mask = survivors(kept.context, self.stream, shape, self.rate, self.elements)
        left = self._dropped(kept, p, mask)
        kept.values.update(x=x, p=p, mask=mask, left=left)
        y = kept.array((*x.shape[:2], self.features), x.dtype)
        (heads,) = self._heads(y)
        self._product(kept, left, v, heads)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, kept: Kept, dy: Array) -> Any:
        """Return dx: the gradients of queries, keys and values side by side."""
        x, p, mask, left = (kept.values[name] for name in ("x", "p", "mask", "left"))
        q, k, v = self._heads(x)
        dx = kept.array(x.shape, x.dtype)
        dq, dk, dv = self._heads(dx)
        (dy,) = self._heads(dy)
        self._product(kept, left.swapaxes(-1, -2), dy, dv)
        dp = kept.array(p.shape, p.dtype)
        np.matmul(dy, v.swapaxes(-1, -2), out=dp)
        if mask is not None:
            dp *= mask
            dp *= dp.dtype.type(1 / (1 - self.rate))
        dp -= np.einsum("...i,...i->...", dp, p)[..., None]
        dp *= p
        dp *= x.dtype.type(1 / np.sqrt(self.features // self.heads))
        self._product(kept, dp, k, dq)
        self._product(kept, dp.swapaxes(-1, -2), q, dk)
        return dx

    @staticmethod
    def _product(kept: Kept, a: Array, b: Array, out: Array) -> None:
        """Put a b into `out`, by way of an array in one piece: products into a view are slow."""
        y = kept.array(out.shape, out.dtype)
        out[...] = np.matmul(a, b, out=y)

    def _heads(self, x: Array) -> list[Array]:
        """Return views of shape (batch, heads, positions, features of a head), one for each third."""
        size = self.features // self.heads
        split = x.reshape(*x.shape[:2], x.shape[2] // self.features, self.heads, size)
        return [split[:, :, third].swapaxes(1, 2) for third in range(split.shape[2])]

    def _dropped(self, kept: Kept, p: Array, mask: Array | None) -> Array:
        if mask is None:
            return p
        left = np.multiply(p, mask, out=kept.array(p.shape, p.dtype))
        left *= p.dtype.type(1 / (1 - self.rate))
        return left
