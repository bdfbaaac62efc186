"""The mean of each window, zeros of the padding included."""

from typing import Any

from lib_dlhpc.layers.base.saved import Array, Saved, Tensors, parts
from lib_dlhpc.layers.base.windows import Pool


class AvgPool(Pool):
    """The mean of each window, zeros of the padding included."""

    backward_reads = frozenset({"input"})

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (channels, *space, batch)."""
        y = saved.array((len(x), *self.output, x.shape[-1]), x.dtype)
        y.fill(0)
        for part in parts(x):
            for tap in self.taps:
                y[part][tap.here] += x[part][tap.there]
        y /= len(self.taps)
        saved.values["shape"] = x.shape
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        dx = saved.array(saved.values["shape"], dy.dtype)
        dx.fill(0)
        dy /= len(self.taps)
        for part in parts(dx):
            for tap in self.taps:
                dx[part][tap.there] += dy[part][tap.here]
        return dx
