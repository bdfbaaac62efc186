"""SiLU, or swish: x times the logistic function of x."""

from typing import Any

from lib_dlhpc.layers.base.elementwise import logistic
from lib_dlhpc.layers.base.kind import Counts, Kind, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors, chunks


class Silu(Kind):
    """x times the logistic function of x (Hendrycks and Gimpel 2016, section 4)."""

    backward_reads = frozenset({"input"})
    elementwise = True
    tensor, sequence, spatial = "features", True, "rows"

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts; it stores its output beside its input."""
        return Counts(site.shape)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y; x is saved, as y does not determine it."""
        saved.values["x"] = x
        y = saved.array(x.shape, x.dtype)
        for up, own in chunks(x, y):
            own[...] = silu(up)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        for down, x in chunks(dy, saved.values["x"]):
            down *= silu_slope(x)
        return dy


def silu(x: Array) -> Array:
    """Return x / (1 + exp(-x))."""
    y = logistic(x)
    y *= x
    return y


def silu_slope(x: Array) -> Array:
    """Return the derivative of silu at x."""
    share = logistic(x)
    return share * (1 + x * (1 - share))
