"""RMS normalization of each head of queries and of keys, before attention."""

from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors
from lib_dlhpc.layers.rms_norm import EPSILON


class HeadNorm(Kind):
    """Queries and keys, head by head, divided by their root mean square, then scaled (Henry et al. 2020, section 3).

    The input holds queries, keys and values side by side, as attention reads them. All heads of queries share one
    scale, all heads of keys another; values pass.
    """

    backward_reads = frozenset({"input"})
    light = True
    tensor = "heads"
    dimensions = (2,)

    @staticmethod
    def describe(site: Site, heads: int, kv_heads: int = 0) -> Counts:
        """Return the counts; kv_heads = 0: as many as heads. Stores normalized queries and keys."""
        positions, width = site.at_least(2)
        kv_heads = kv_heads or heads
        if width % (heads + 2 * kv_heads):
            raise SpecError(
                f"{site.name}: {width} features are not divisible by the {heads} heads of queries and"
                f" {kv_heads} each of keys and values."
            )
        size = width // (heads + 2 * kv_heads)
        return Counts(
            site.shape,
            parameters=2 * size,
            stored=positions * (heads + kv_heads) * size,
            attributes={"heads": heads, "kv_heads": kv_heads},
        )

    def __init__(self, layer: Layer) -> None:
        self.heads, self.kv_heads = layer.attributes["heads"], layer.attributes["kv_heads"]
        self.size = layer.parameters // 2
        self.shapes: Shapes = {"queries": (self.size,), "keys": (self.size,)}

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Scales of 1."""
        for weight in weights.values():
            weight.fill(1)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, shaped as x."""
        y = saved.array(x.shape, x.dtype)
        np.copyto(y, x)
        saved.values["x"] = x
        for name, own in self._normed(y):
            own *= _inverse(own)
            own *= weights[name]
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        inputs = dict(self._normed(saved.values["x"]))
        for name, own in self._normed(dy):
            inverse = _inverse(inputs[name])
            normal = inputs[name] * inverse
            np.einsum("bphi,bphi->i", own, normal, out=gradients[name])
            own *= weights[name]
            normal *= np.mean(own * normal, axis=-1, keepdims=True)
            own -= normal
            own *= inverse
        return dy

    def _normed(self, x: Array) -> list[tuple[str, Array]]:
        """Return views of queries and of keys, (batch, positions, heads, size)."""
        heads = x.reshape(*x.shape[:2], self.heads + 2 * self.kv_heads, self.size)
        stop = self.heads + self.kv_heads
        return [("queries", heads[:, :, : self.heads]), ("keys", heads[:, :, self.heads : stop])]


def _inverse(x: Array) -> Array:
    return 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(EPSILON))
