"""Elementwise layers: those that work in place, and those that save their input; their functions."""

from typing import Any, ClassVar

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Kind, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors, chunks


class InPlace(Kind):
    """An elementwise layer whose output overwrites its input, so that it stores nothing more for backward."""

    elementwise = True
    tensor, sequence, spatial = "features", True, "rows"

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts."""
        return Counts(site.shape, stored=0)


class OfInput(Kind):
    """An elementwise layer that saves its input, as its output does not determine it.

    function, slope: of an array, and its derivative.
    """

    backward_reads = frozenset({"input"})
    light = True
    elementwise = True
    tensor, sequence, spatial = "features", True, "rows"
    function: ClassVar["staticmethod[[Array], Array]"]
    slope: ClassVar["staticmethod[[Array], Array]"]

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts; it stores its output beside its input."""
        return Counts(site.shape)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y."""
        saved.values["x"] = x
        y = saved.array(x.shape, x.dtype)
        for up, own in chunks(x, y):
            own[...] = type(self).function(up)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        for down, x in chunks(dy, saved.values["x"]):
            down *= type(self).slope(x)
        return dy


def in_place(saved: Saved, x: Array) -> Array:
    """Return the array to write to: the input, where no other layer reads it."""
    return x if saved.inplace else saved.array(x.shape, x.dtype)


def logistic(x: Array, out: Array | None = None) -> Array:
    """Return 1 / (1 + exp(-x)), which never overflows in this form."""
    y = np.multiply(x, 0.5, out=out)
    y = np.tanh(y, out=out if out is not None else y)
    y += 1
    y *= 0.5
    return y
