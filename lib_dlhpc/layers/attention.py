"""Self-attention over queries, keys and values."""

from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.masks import stream_of, survivors
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors


class Attention(Kind):
    """softmax(q k^T / sqrt(d)) v for each head (Vaswani et al. 2017, equation 1).

    The input holds queries, keys and values side by side: (batch, positions, 3 * features).
    """

    product = True
    selective = True
    tensor = "heads"
    dimensions = (2,)

    @staticmethod
    def describe(site: Site, heads: int, causal: bool = False, dropout: float = 0.0) -> Counts:
        """Return the counts; the input is (positions, 3 * features). A causal mask does not halve the counted products.

        Stores the softmax, its dropout mask and copy, and the output (Korthikanti et al. 2022, section 4.1).
        """
        shape = site.at_least(2)
        positions, features = shape[0], shape[-1] // 3
        if shape[-1] % 3:
            raise SpecError(
                f"{site.name}: reads queries, keys and values concatenated; {shape[-1]} features are not divisible"
                " by three."
            )
        if features % heads:
            raise SpecError(
                f"{site.name}: heads = {heads} must divide the {features} features of a query (a transformer's"
                f" hidden = {features})."
            )
        scores = heads * positions**2
        return Counts(
            (positions, features),
            forward_flop=4.0 * positions**2 * features,
            stored=scores * (2 if dropout else 1) + positions * features,
            mask_bytes=scores if dropout else 0,
            attributes={"heads": heads, "causal": causal, "dropout": dropout},
        )

    @staticmethod
    def extra_traffic(layer: Layer) -> float:
        """Return the elements of scores that kernels read and write, in addition to those stored.

        Scores are processed in separate kernels: one write, two reads and writes (softmax, dropout), one read.
        """
        positions, features = layer.output_shape
        stored = layer.stored - positions * features
        scores = layer.attributes["heads"] * positions**2
        return float((6 if layer.attributes["dropout"] else 4) * scores - stored)

    @staticmethod
    def numpy_traffic(layer: Layer) -> float:
        """Return the elements of scores that the passes move."""
        return float(6 * layer.attributes["heads"] * layer.output_shape[0] ** 2)

    @staticmethod
    def rate_key(layer: Layer) -> str:
        """Return the name of its measured rate: dropout costs random numbers."""
        return "attention_with_dropout" if layer.attributes.get("dropout") else layer.kind

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
