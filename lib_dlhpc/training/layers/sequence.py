"""Layers of language models: embeddings and self-attention over (batch, positions, features)."""

from typing import Any

import numpy as np

from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.layers.pointwise import stream_of, survivors
from lib_dlhpc.training.layers.saved import Array, Saved, Shapes, Tensors

SPREAD = 0.02  # of the first embeddings (Radford et al. 2018, section 4.1)


class Embedding:
    """A row of features for each token; zeros for tokens whose rows another rank has."""

    def __init__(self, layer: Layer) -> None:
        self.shapes: Shapes = {
            "weight": (layer.attributes["vocabulary"], layer.attributes["features"])
        }
        axis, ranges = layer.attributes.get("part", {}).get("weight", (1, ()))
        self.rows = ranges[0] if axis == 0 else None  # of the full table
        self.tied = False  # set by the network if a dense layer adds to the gradient first

    def start(self, weights: Tensors, rng: np.random.Generator) -> None:
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


class PositionEmbedding:
    """A learned row added at each position."""

    def __init__(self, layer: Layer) -> None:
        self.shapes: Shapes = {"weight": (layer.attributes["positions"], layer.input_shape[-1])}

    def start(self, weights: Tensors, rng: np.random.Generator) -> None:
        """Small normal numbers."""
        weights["weight"][...] = rng.normal(0, SPREAD, weights["weight"].shape)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, shaped as x."""
        y = x if saved.inplace else saved.array(x.shape, x.dtype)
        return np.add(x, weights["weight"][: x.shape[1]], out=y)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
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
        scores = options.get("scores")  # this rank's heads of the full layer
        self.elements = (0, (scores,)) if scores else None
        self.all_heads = layer.attributes.get("whole", layer).attributes["heads"]

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (batch, positions, features)."""
        q, k, v = self._heads(x)
        p = saved.array((*q.shape[:-1], q.shape[-2]), x.dtype)
        np.matmul(q, k.swapaxes(-1, -2), out=p)
        p *= x.dtype.type(1 / np.sqrt(self.features // self.heads))
        if self.causal:
            p[..., np.triu(np.ones(p.shape[-2:], dtype=np.bool_), 1)] = -np.inf
        p -= p.max(axis=-1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=-1, keepdims=True)
        mask = None
        if self.rate and saved.context.training:
            shape = (p.shape[0], self.all_heads, *p.shape[2:])
            mask = survivors(saved.context, self.stream, shape, self.rate, self.elements)
        left = self._dropped(saved, p, mask)
        saved.values.update(x=x, p=p, mask=mask, left=left)
        y = saved.array((*x.shape[:2], self.features), x.dtype)
        (heads,) = self._heads(y)
        self._product(saved, left, v, heads)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx: the gradients of queries, keys and values side by side."""
        x, p, mask, left = (saved.values[name] for name in ("x", "p", "mask", "left"))
        q, k, v = self._heads(x)
        dx = saved.array(x.shape, x.dtype)
        dq, dk, dv = self._heads(dx)
        (dy,) = self._heads(dy)
        self._product(saved, left.swapaxes(-1, -2), dy, dv)
        dp = saved.array(p.shape, p.dtype)
        np.matmul(dy, v.swapaxes(-1, -2), out=dp)
        if mask is not None:
            dp *= mask
            dp *= dp.dtype.type(1 / (1 - self.rate))
        dp -= np.einsum("...i,...i->...", dp, p)[..., None]
        dp *= p
        dp *= x.dtype.type(1 / np.sqrt(self.features // self.heads))
        self._product(saved, dp, k, dq)
        self._product(saved, dp.swapaxes(-1, -2), q, dk)
        return dx

    @staticmethod
    def _product(saved: Saved, a: Array, b: Array, out: Array) -> None:
        """Write a b to `out` through a contiguous array: products into a view are slow."""
        y = saved.array(out.shape, out.dtype)
        out[...] = np.matmul(a, b, out=y)

    def _heads(self, x: Array) -> list[Array]:
        """Return views of shape (batch, heads, positions, features of a head), one for each third."""
        size = self.features // self.heads
        split = x.reshape(*x.shape[:2], x.shape[2] // self.features, self.heads, size)
        return [split[:, :, third].swapaxes(1, 2) for third in range(split.shape[2])]

    def _dropped(self, saved: Saved, p: Array, mask: Array | None) -> Array:
        if mask is None:
            return p
        left = np.multiply(p, mask, out=saved.array(p.shape, p.dtype))
        left *= p.dtype.type(1 / (1 - self.rate))
        return left
