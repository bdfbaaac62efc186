"""Attention in one kernel: no matrix of scores in memory, one number of each row instead (FlashAttention)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lib_dlhpc.layers.attention import Attention, counts, rotated
from lib_dlhpc.layers.base.kind import Counts, Layer, Shape, Site
from lib_dlhpc.layers.base.merged import merged
from lib_dlhpc.layers.base.saved import Array, Context, Saved, Tensors

ROW = 4  # bytes of the logarithm of a row's sum


class FusedAttention(Attention):
    """Attention whose scores exist a block at a time, and are recomputed in backward (Dao et al. 2022, algorithm 1).

    Here a block is one sample. Its results are those of attention.
    """

    selective = False
    kernels = 2  # a copy of queries, keys and values; the rest

    @staticmethod
    def describe(
        site: Site,
        heads: int,
        causal: bool = False,
        dropout: float = 0.0,
        kv_heads: int = 0,
        window: int = 0,
        rotary_base: int = 0,
        alibi: bool = False,
    ) -> Counts:
        """Return the counts of attention with these options, fused."""
        found = Attention.describe(
            site, heads, causal, dropout, kv_heads, window, rotary_base, alibi
        )
        return fused_counts(found.output, found.attributes)

    @staticmethod
    def extra_traffic(layer: Layer, size: int) -> float:
        """Return the elements that the rotation moves: scores stay on the chip."""
        return float(rotated(layer))

    @staticmethod
    def repeated_flop(layer: Layer) -> float:
        """Return the FLOP of q k^T, one of the two products of forward."""
        return layer.forward_flop / 2

    @staticmethod
    def computed_part(layer: Layer) -> float:
        """Return which part of the products within the window a causal mask leaves."""
        options = layer.attributes
        positions = options.get("sequence", layer.output_shape[0])
        seen = min(options["window"] or positions, positions)
        # Position i sees min(i, seen) of them.
        return (positions - (seen - 1) / 2) / positions if options["causal"] else 1.0

    @classmethod
    def beside(cls, layer: Layer, size: int) -> tuple[float, float]:
        """Return what sums of blocks move."""
        return merged(layer, size)

    @staticmethod
    def rate_key(layer: Layer) -> str:
        """Return the name of its measured rate."""
        return layer.kind

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (batch, positions, features)."""
        x = self.turned(saved, x)
        y = saved.array((*x.shape[:2], self.features), x.dtype)
        (q, k, v), out = self.heads_of(x), self.queries_of(y)
        rows = saved.array((*q.shape[:-1], 1), x.dtype)
        for n in range(len(x)):
            one = slice(n, n + 1)
            p = self.scores(saved, q[one], k[one])
            top = p.max(axis=-1, keepdims=True)
            p -= top
            np.exp(p, out=p)
            total = p.sum(axis=-1, keepdims=True)
            rows[one] = top + np.log(total)
            p /= total
            left = self.dropped(saved, p, self._mask_of(n, saved.context, p))
            self.multiply(saved, left, v[one], out[one])
        saved.values.update(x=x, rows=rows)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx: the gradients of queries, keys and values side by side."""
        x, rows = saved.values["x"], saved.values["rows"]
        dx = saved.array(x.shape, x.dtype)
        of, to, dy = self.heads_of(x), self.heads_of(dx), self.queries_of(dy)
        for n in range(len(x)):
            one = slice(n, n + 1)
            q, k, v = (each[one] for each in of)
            dq, dk, dv = (each[one] for each in to)
            p = self.scores(saved, q, k)
            p -= rows[one]
            np.exp(p, out=p)
            mask = self._mask_of(n, saved.context, p)
            left = self.dropped(saved, p, mask)
            self.gradients(saved, p, mask, left, dy[one], (q, k, v), (dq, dk, dv))
        return self.turned_back(dx)

    def _mask_of(self, n: int, context: Context, p: Array) -> Array | None:
        """Return the mask of sample n of the batch, drawn again in backward."""
        return self.mask(replace(context, first_sample=context.first_sample + n), p)


def fused_counts(output: Shape, options: Mapping[str, Any]) -> Counts:
    """Return the counts: products within the window only, the output and a number for each row of scores."""
    positions, features = output
    seen = min(options["window"] or positions, positions)
    return Counts(
        output,
        forward_flop=4.0 * positions * seen * features,
        mask_bytes=ROW * options["heads"] * positions,
        attributes=options,
    )


def fused(layer: Layer, fuse: bool) -> Layer:
    """Return a full layer of attention as one kernel, or as separate ones."""
    found = (fused_counts if fuse else counts)(layer.output_shape, layer.attributes)
    features = layer.output_shape[0] * layer.output_shape[1]
    return replace(
        layer,
        kind="fused_attention" if fuse else "attention",
        forward_flop=found.forward_flop,
        stored=features if found.stored is None else found.stored,
        mask_bytes=found.mask_bytes,
    )
