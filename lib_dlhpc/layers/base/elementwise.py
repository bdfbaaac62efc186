"""Elementwise layers that work in place, and their functions."""

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Kind, Site
from lib_dlhpc.layers.base.saved import Array, Saved


class InPlace(Kind):
    """An elementwise layer whose output overwrites its input, so that it stores nothing more for backward."""

    elementwise = True
    tensor, sequence, spatial = "features", True, "rows"

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts."""
        return Counts(site.shape, stored=0)


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
