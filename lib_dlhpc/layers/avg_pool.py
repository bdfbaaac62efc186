"""The mean of each window, zeros of the padding included."""

from typing import Any

from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors, parts
from lib_dlhpc.layers.base.windows import Size, pooled, taps, whole


class AvgPool(Kind):
    """The mean of each window, zeros of the padding included."""

    backward_reads = frozenset({"input"})
    tensor, spatial = "features", "windows"
    dimensions = (3,)

    @staticmethod
    def describe(site: Site, kernel: Size, stride: Size | None = None, padding: Size = 0) -> Counts:
        """Return the counts; the default stride is the kernel size."""
        return pooled(site, kernel, stride, padding)

    def __init__(self, layer: Layer) -> None:
        self.output = layer.output_shape[1:]
        self.taps = taps(layer.input_shape[1:], whole(self.output), layer.attributes)

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
