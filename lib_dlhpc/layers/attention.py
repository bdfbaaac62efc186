"""Self-attention over queries, keys and values."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Shape, Site
from lib_dlhpc.layers.base.masks import stream_of, survivors
from lib_dlhpc.layers.base.saved import Array, Context, Saved, Tensors
from lib_dlhpc.layers.base.slices import Part, part_of, tokens_of


class Attention(Kind):
    """softmax(q k^T / sqrt(d)) v for each head (Vaswani et al. 2017, equation 1).

    The input holds queries, keys and values side by side: (batch, positions, (heads + 2 kv_heads) * d). With fewer
    heads of keys and values, each serves a group of consecutive heads of queries: grouped-query attention (Ainslie
    et al. 2023), with one of them multi-query attention (Shazeer 2019).

    window: each position sees itself and the window - 1 before it (Beltagy et al. 2020, "Longformer"); 0: all.
    rotary_base: queries and keys are rotated by position, their halves as pairs, by angles i base^(-2j / d) (Su et
    al. 2021, equation 15); 0: not. alibi: scores fall linearly with the distance (Press et al. 2022).
    """

    product = True
    selective = True
    kernels = 6  # a copy of queries, keys and values; two products; softmax; dropout; a copy of the output
    tensor = "heads"
    dimensions = (2,)

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
        """Return the counts; kv_heads = 0: as many as heads. A mask, causal or of a window, does not reduce them.

        Stores the softmax, its dropout mask and copy, and the output (Korthikanti et al. 2022, section 4.1).
        """
        shape = site.at_least(2)
        positions, width = shape[0], shape[-1]
        kv_heads = kv_heads or heads
        size = _head_size(site.name, width, heads, kv_heads)
        if window and not causal:
            raise SpecError(
                f"{site.name}: window = {window}: a window of positions before each needs causal = true."
            )
        if rotary_base and size % 2:
            raise SpecError(
                f"{site.name}: rotary_base = {rotary_base}: rotates pairs of features, and a head has {size}."
            )
        options = {
            "heads": heads,
            "causal": causal,
            "dropout": dropout,
            "kv_heads": kv_heads,
            "window": window,
            "rotary_base": rotary_base,
            "alibi": alibi,
        }
        return counts((positions, heads * size), options)

    @staticmethod
    def extra_traffic(layer: Layer, size: int) -> float:
        """Return the elements that kernels read and write, in addition to input, output and those stored.

        Scores are processed in separate kernels: one write, two reads and writes (softmax, dropout), one read. The
        rotation reads and writes queries and keys.
        """
        positions, features = layer.output_shape
        stored = layer.stored - positions * features
        scores = scores_of(layer)
        moved = (6 if layer.attributes["dropout"] else 4) * scores - stored
        return float(moved + rotated(layer))

    @staticmethod
    def numpy_traffic(layer: Layer) -> float:
        """Return the elements of scores, and of rotated queries and keys, that the passes move."""
        return float(6 * scores_of(layer) + rotated(layer))

    @staticmethod
    def rate_key(layer: Layer) -> str:
        """Return the name of its measured rate: dropout costs random numbers."""
        return "attention_with_dropout" if layer.attributes.get("dropout") else layer.kind

    def __init__(self, layer: Layer) -> None:
        options = layer.attributes
        self.heads, self.kv_heads = options["heads"], options["kv_heads"]
        self.causal, self.rate = options["causal"], options["dropout"]
        self.window, self.base = options["window"], options["rotary_base"]
        self.features, self.stream = layer.output_shape[-1], stream_of(layer)
        self.positions = np.arange(options.get("sequence", layer.output_shape[0]))
        self.own = part_of(self.positions, tokens_of(layer))  # of this rank
        scores = options.get("scores")  # this rank's heads of the full layer
        self.elements = (0, (scores,)) if scores else None
        self.all_heads = layer.attributes.get("whole", layer).attributes["heads"]
        first = scores[0] if scores else 0
        slopes = alibi_slopes(self.all_heads)[first : first + self.heads]
        self.slopes = slopes.reshape(self.kv_heads, -1, 1, 1) if options["alibi"] else None

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (batch, positions, features)."""
        x = self.turned(saved, x)
        q, k, v = self.heads_of(x)
        p = self.scores(saved, q, k)
        p -= p.max(axis=-1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(axis=-1, keepdims=True)
        mask = self.mask(saved.context, p)
        left = self.dropped(saved, p, mask)
        saved.values.update(x=x, p=p, mask=mask, left=left)
        y = saved.array((*x.shape[:2], self.features), x.dtype)
        self.multiply(saved, left, v, self.queries_of(y))
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx: the gradients of queries, keys and values side by side."""
        x, p, mask, left = (saved.values[name] for name in ("x", "p", "mask", "left"))
        dx = saved.array(x.shape, x.dtype)
        self.gradients(
            saved, p, mask, left, self.queries_of(dy), self.heads_of(x), self.heads_of(dx)
        )
        return self.turned_back(dx)

    def scores(self, saved: Saved, q: Array, k: Array, keys: Array | None = None) -> Array:
        """Return q k^T / sqrt(d) with positions, minus infinity where a position does not see another.

        keys: the positions of the keys, if not those of the queries.
        """
        keys = self.own if keys is None else keys
        p = saved.array((*q.shape[:-1], k.shape[-2]), q.dtype)
        np.matmul(q, k.swapaxes(-1, -2), out=p)
        p *= q.dtype.type(1 / np.sqrt(q.shape[-1]))
        # A term that all scores of a row share drops out of the softmax.
        if self.slopes is not None:
            p += (self.slopes * keys).astype(p.dtype)
        if self.causal:
            p[..., self._masked(keys)] = -np.inf
        return p

    def gradients(
        self,
        saved: Saved,
        p: Array,
        mask: Array | None,
        left: Array,
        dy: Array,
        of: tuple[Array, Array, Array],
        to: tuple[Array, Array, Array],
        sums: Array | None = None,
    ) -> None:
        """Write the gradients of queries, keys and values to `to`.

        sums: of each row of the gradient of the softmax times the softmax, where p is a part of the rows.
        """
        (q, k, v), (dq, dk, dv) = of, to
        self.multiply(saved, left.swapaxes(-1, -2), dy, dv)
        dp = saved.array(p.shape, p.dtype)
        np.matmul(dy, v.swapaxes(-1, -2), out=dp)
        if mask is not None:
            dp *= mask
            dp *= dp.dtype.type(1 / (1 - self.rate))
        dp -= np.einsum("...i,...i->...", dp, p)[..., None] if sums is None else sums
        dp *= p
        dp *= q.dtype.type(1 / np.sqrt(q.shape[-1]))
        self.multiply(saved, dp, k, dq)
        self.multiply(saved, dp.swapaxes(-1, -2), q, dk)

    def mask(self, context: Context, p: Array, *tokens: Part | None) -> Array | None:
        """Return which elements of the softmax survive dropout; tokens: which rows and columns p has, if not all."""
        if not self.rate or not context.training:
            return None
        shape = (p.shape[0], self.all_heads, len(self.positions), len(self.positions))
        mask = survivors(context, self.stream, shape, self.rate, self.elements, *tokens)
        return mask.reshape(p.shape)

    @staticmethod
    def multiply(saved: Saved, a: Array, b: Array, out: Array) -> None:
        """Write a b to `out` through a contiguous array: products into a view are slow.

        The gradient of a key or value is the sum over its group of heads.
        """
        group = max(a.shape[2], b.shape[2])
        y = saved.array((*a.shape[:2], group, a.shape[-2], b.shape[-1]), out.dtype)
        np.matmul(a, b, out=y)
        out[...] = y if out.shape[2] == group else y.sum(axis=2, keepdims=True)

    def heads_of(self, x: Array) -> tuple[Array, Array, Array]:
        """Return views of queries, keys and values: (batch, kv_heads, group, positions, d); keys have a group of 1."""
        return self.queries_of(x[..., : self.features]), *self.keys_of(x[..., self.features :])

    def keys_of(self, x: Array) -> tuple[Array, Array]:
        """Return views of keys and values, which lie side by side."""
        shape = (*x.shape[:2], self.kv_heads, 1, self.features // self.heads)
        k, v = (each.reshape(shape).transpose(0, 2, 3, 1, 4) for each in np.split(x, 2, axis=-1))
        return k, v

    def queries_of(self, x: Array) -> Array:
        """Return a view of what has the shape of queries: (batch, kv_heads, group, positions, d)."""
        size = self.features // self.heads
        split = x.reshape(*x.shape[:2], self.kv_heads, self.heads // self.kv_heads, size)
        return split.transpose(0, 2, 3, 1, 4)

    def _masked(self, keys: Array) -> Array:
        """Return which scores no position sees: of later positions, and of those before its window."""
        ahead = self.own[:, None] - keys
        return (ahead < 0) | (ahead >= self.window) if self.window else ahead < 0

    def turned(self, saved: Saved, x: Array) -> Array:
        """Return x with queries and keys rotated by their position."""
        return self._turned(x, saved.array(x.shape, x.dtype), 1) if self.base else x

    def turned_back(self, dx: Array) -> Array:
        """Return the gradient of x, of that of the rotated x."""
        return self._turned(dx, dx, -1) if self.base else dx

    def _turned(self, x: Array, out: Array, sign: int) -> Array:
        """Write x to `out` with queries and keys rotated by sign times the angle of their position."""
        size = self.features // self.heads
        heads = self.heads + self.kv_heads
        turning = heads * size
        angles = _rotation(len(self.positions), size, self.base)
        cos, sin = (angle[self.own].astype(x.dtype) for angle in angles)
        out[..., turning:] = x[..., turning:]
        pairs, turned = (
            each[..., :turning].reshape(*x.shape[:2], heads, 2, size // 2) for each in (x, out)
        )
        for sample, own in zip(pairs, turned, strict=True):  # so that temporary arrays are small
            a, b = sample[:, :, 0], sample[:, :, 1]
            left = a * cos - sign * b * sin
            own[:, :, 1] = b * cos + sign * a * sin
            own[:, :, 0] = left
        return out

    def dropped(self, saved: Saved, p: Array, mask: Array | None) -> Array:
        """Return what survives of the softmax, scaled up."""
        if mask is None:
            return p
        left = np.multiply(p, mask, out=saved.array(p.shape, p.dtype))
        left *= p.dtype.type(1 / (1 - self.rate))
        return left


def counts(output: Shape, options: Mapping[str, Any]) -> Counts:
    """Return the counts of attention with these attributes."""
    positions, features = output
    scores, dropout = options["heads"] * positions**2, options["dropout"]
    return Counts(
        output,
        forward_flop=4.0 * positions**2 * features,
        stored=scores * (2 if dropout else 1) + positions * features,
        mask_bytes=scores if dropout else 0,
        attributes=options,
    )


def scores_of(layer: Layer) -> int:
    """Return the scores that a rank computes: with context parallelism those of its tokens with all."""
    own = layer.output_shape[0]
    return int(layer.attributes["heads"] * own * layer.attributes.get("sequence", own))


def rotated(layer: Layer) -> int:
    """Return the elements that the rotation of queries and keys reads and writes."""
    options = layer.attributes
    positions, features = layer.output_shape
    keys = options["kv_heads"] * features // options["heads"] if options["heads"] else 0
    return 2 * positions * (features + keys) if options["rotary_base"] else 0


def alibi_slopes(heads: int) -> Array:
    """Return the slope of each head, 2^(-8 / n), 2^(-16 / n), ..., n the heads (Press et al. 2022, section 3).

    If n is not a power of two: those of the power below, then every second one of the power above.
    """
    below = 2 ** int(np.log2(heads))
    slopes = 2.0 ** (-8 / below * np.arange(1, below + 1))
    between = 2.0 ** (-4 / below * np.arange(1, 2 * (heads - below), 2))
    return np.concatenate([slopes, between])


@lru_cache(maxsize=8)
def _rotation(positions: int, size: int, base: int) -> tuple[Array, Array]:
    """Return cosine and sine of the angle of each position and pair, (positions, 1, size / 2)."""
    angles = np.outer(np.arange(positions), float(base) ** (-2 / size * np.arange(size // 2)))
    return np.cos(angles)[:, None], np.sin(angles)[:, None]


def _head_size(name: str, width: int, heads: int, kv_heads: int) -> int:
    """Return the features of a head, of an input of `width` features."""
    if heads % kv_heads:
        raise SpecError(
            f"{name}: kv_heads = {kv_heads} must divide heads = {heads}: each serves as many queries."
        )
    if kv_heads == heads and width % 3:
        raise SpecError(
            f"{name}: reads queries, keys and values concatenated; {width} features are not divisible"
            " by three."
        )
    if kv_heads == heads and width // 3 % heads:
        raise SpecError(
            f"{name}: heads = {heads} must divide the {width // 3} features of a query (a transformer's"
            f" hidden = {width // 3})."
        )
    if width % (heads + 2 * kv_heads):
        raise SpecError(
            f"{name}: {width} features are not divisible by the {heads} heads of queries and {kv_heads} each of"
            " keys and values."
        )
    return width // (heads + 2 * kv_heads)
