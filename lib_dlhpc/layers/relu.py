"""max(0, x), in place."""

from typing import Any

import numpy as np

from lib_dlhpc.layers.base.elementwise import InPlace, in_place
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors, chunks


class Relu(InPlace):
    """max(0, x), in place."""

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y."""
        y = saved.values["y"] = in_place(saved, x)
        return np.maximum(x, 0, out=y)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        y = saved.values["y"]
        for down, own in chunks(dy, y):
            down *= own > 0
        return dy
