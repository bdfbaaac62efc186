"""Ring: attention to the tokens of several ranks, whose keys and values travel from rank to rank.

Each rank computes its queries against the block that it has while the next one arrives; the softmax is that of the
blocks so far, corrected when a larger score comes (Liu et al. 2023, "Ring attention with blockwise transformers",
section 3.2; Dao et al. 2022, "FlashAttention", algorithm 1). Backward repeats the scores block by block; the gradient
of a block follows it from rank to rank, and home from the last.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Saved, Tensors
from lib_dlhpc.layers.base.slices import part_of
from lib_dlhpc.layout import own_tokens
from lib_dlhpc.spec.model import Layer

GROUP = "context"  # of communicators
KEYS, GRADIENTS = 31, 32  # tags


class Ring:
    """Attention of this rank's tokens to those of all ranks."""

    def __init__(self, layer: Layer) -> None:
        options = layer.attributes
        self.name, self.features = layer.name, layer.output_shape[-1]
        self.ranks, self.place, way = options["context"]
        length = options["sequence"]
        self.tokens = [own_tokens(length, self.ranks, rank, way) for rank in range(self.ranks)]
        self.positions = [part_of(np.arange(length), (0, tokens)) for tokens in self.tokens]
        self.attention: Any = layer.traits(layer)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, of this rank's tokens."""
        attention = self.attention
        x = attention.turned(saved, x)
        q = attention.queries_of(x[..., : self.features])
        y = saved.array((*x.shape[:2], self.features), x.dtype)
        y.fill(0)
        out, total = attention.queries_of(y), 0.0
        top = np.full((*q.shape[:-1], 1), -np.inf, x.dtype)
        for source, block in self._around(saved, x[..., self.features :]):
            k, v = attention.keys_of(block)
            p = attention.scores(saved, q, k, self.positions[source])
            before, top = top, np.maximum(top, p.max(axis=-1, keepdims=True))
            p -= top
            np.exp(p, out=p)
            shrinks = np.exp(before - top)
            total = total * shrinks + p.sum(axis=-1, keepdims=True)
            out *= shrinks
            part = saved.array(q.shape, x.dtype)
            left = attention.dropped(saved, p, self._mask(saved, p, source))
            attention.multiply(saved, left, v, part)
            out += part
        out /= total
        saved.values.update(x=x, y=y, rows=top + np.log(total))
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx, of this rank's tokens."""
        attention = self.attention
        x, y, rows = (saved.values[name] for name in ("x", "y", "rows"))
        dx = saved.array(x.shape, x.dtype)
        dx[..., : self.features] = 0
        q, dq = (attention.queries_of(array[..., : self.features]) for array in (x, dx))
        dout = attention.queries_of(dy)
        sums = np.einsum("...i,...i->...", dout, attention.queries_of(y))[..., None]
        arrived, requests = None, list[Any]()
        for source, block in self._around(saved, x[..., self.features :]):
            k, v = attention.keys_of(block)
            p = attention.scores(saved, q, k, self.positions[source])
            p -= rows
            np.exp(p, out=p)
            mask = self._mask(saved, p, source)
            block_gradient, part = saved.array(block.shape, x.dtype), saved.array(q.shape, x.dtype)
            left, to = attention.dropped(saved, p, mask), (part, *attention.keys_of(block_gradient))
            attention.gradients(saved, p, mask, left, dout, (q, k, v), to, sums)
            dq += part
            if arrived is not None:
                self._wait(saved, requests, block_gradient)
                block_gradient += arrived
            arrived, requests = self._pass_on(saved, block_gradient, GRADIENTS)
        self._wait(saved, requests, block_gradient)
        dx[..., self.features :] = arrived
        return attention.turned_back(dx)

    def _around(self, saved: Saved, keys_values: Array) -> Iterator[tuple[int, Array]]:
        """Yield the ranks, and their keys and values; the next ones arrive while the caller computes."""
        block = np.ascontiguousarray(keys_values)
        for step in range(self.ranks):
            coming, requests = block, list[Any]()
            if step < self.ranks - 1:
                coming, requests = self._pass_on(saved, block, KEYS)
            yield (self.place - step) % self.ranks, block
            if requests:
                self._wait(saved, requests, block)
            block = coming

    def _pass_on(self, saved: Saved, block: Array, tag: int) -> tuple[Array, list[Any]]:
        """Send a block to the next rank; return where that of the previous one will be, and the requests."""
        comm, coming = saved.context.groups[GROUP], saved.array(block.shape, block.dtype)
        after, before = (self.place + 1) % self.ranks, (self.place - 1) % self.ranks
        return coming, [comm.Irecv(coming, before, tag), comm.Isend(block, after, tag)]

    def _wait(self, saved: Saved, requests: list[Any], sent: Array) -> None:
        with saved.context.communicates(f"ring {self.name}", sent.nbytes):
            for request in requests:
                request.Wait()

    def _mask(self, saved: Saved, p: Array, source: int) -> Array | None:
        """Return which scores of this rank's tokens with those of another survive dropout."""
        queries, others = (1, self.tokens[self.place]), (2, self.tokens[source])
        mask: Array | None = self.attention.mask(saved.context, p, queries, others)
        return mask
