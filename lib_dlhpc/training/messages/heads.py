"""Heads: attention over the tokens of several ranks, each of which computes some heads of all tokens.

Before it ranks send the queries, keys and values of their tokens to the ranks that have the heads; after it the outputs
travel home. Backward, gradients go the same ways (Jacobs et al. 2023, "DeepSpeed Ulysses", section 3.1).
"""

from dataclasses import replace
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Saved, Tensors
from lib_dlhpc.spec.model import Layer

GROUP = "context"  # of communicators


class Heads:
    """Attention of all tokens, of the heads of one rank."""

    def __init__(self, layer: Layer) -> None:
        options = layer.attributes
        self.name, (self.ranks, place, _) = layer.name, options["context"]
        self.heads, self.kv_heads = (options[key] // self.ranks for key in ("heads", "kv_heads"))
        self.size = layer.output_shape[-1] // options["heads"]
        first = options.get("scores", (0, 0))[0] + place * self.heads
        attributes = {
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "scores": (first, first + self.heads),
            "whole": options.get("whole", layer),
        }
        positions = options["sequence"]
        attributes |= {"tokens": ((0, positions),)}
        whole = replace(
            layer,
            input_shape=(positions, layer.input_shape[-1] // self.ranks),
            output_shape=(positions, layer.output_shape[-1] // self.ranks),
            attributes={**options, **attributes},
        )
        self.attention: Any = layer.traits(whole)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, of this rank's tokens."""
        given = self._to_heads(saved, self._by_rank(x, self._groups))
        return self._to_tokens(saved, self.attention.forward(weights, saved, given), (self.heads,))

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx, of this rank's tokens."""
        given = self._to_heads(saved, self._by_rank(dy, (self.heads,)))
        dx = self.attention.backward(weights, gradients, saved, given)
        return self._to_tokens(saved, dx, self._groups)

    @property
    def _groups(self) -> tuple[int, ...]:
        """The heads of queries, keys and values of a rank."""
        return self.heads, self.kv_heads, self.kv_heads

    def _by_rank(self, x: Array, groups: tuple[int, ...]) -> Array:
        """Return the features of each rank's heads, (ranks, batch, tokens, features)."""
        ends = np.cumsum([self.ranks * heads * self.size for heads in groups])[:-1]
        blocks = (part.reshape(*x.shape[:2], self.ranks, -1) for part in np.split(x, ends, axis=-1))
        return np.ascontiguousarray(np.moveaxis(np.concatenate([*blocks], axis=-1), 2, 0))

    def _to_heads(self, saved: Saved, parts: Array) -> Array:
        """Return all tokens of this rank's heads, (batch, positions, features)."""
        received = self._exchanged(saved, parts)
        _, batch, tokens, width = received.shape
        y = saved.array((batch, self.ranks * tokens, width), received.dtype)
        for rank, part in enumerate(received):
            y[:, rank * tokens : (rank + 1) * tokens] = part
        return y

    def _to_tokens(self, saved: Saved, x: Array, groups: tuple[int, ...]) -> Array:
        """Return this rank's tokens of all heads; x: all tokens of its own."""
        batch, positions, width = x.shape
        parts = x.reshape(batch, self.ranks, positions // self.ranks, width).swapaxes(0, 1)
        received = np.moveaxis(self._exchanged(saved, np.ascontiguousarray(parts)), 0, 2)
        y = saved.array((batch, received.shape[1], self.ranks * width), x.dtype)
        first = 0
        for heads in groups:  # of each rank: queries, keys, values
            stop = first + heads * self.size
            features = received[..., first:stop].reshape(*received.shape[:2], -1)
            y[..., self.ranks * first : self.ranks * stop] = features
            first = stop
        return y

    def _exchanged(self, saved: Saved, parts: Array) -> Array:
        """Send part k to rank k; return what arrived, in order of the ranks."""
        received = np.empty_like(parts)
        with saved.context.communicates(f"all_to_all {self.name}", parts.nbytes):
            saved.context.groups[GROUP].Alltoall(parts, received)
        return received
