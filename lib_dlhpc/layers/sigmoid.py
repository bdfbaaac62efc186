"""1 / (1 + exp(-x)), in place."""

from typing import Any

import numpy as np

from lib_dlhpc.layers.base.elementwise import InPlace, in_place, logistic
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors


class Sigmoid(InPlace):
    """1 / (1 + exp(-x)), in place."""

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, computed with tanh, which does not overflow."""
        y = saved.values["y"] = in_place(saved, x)
        return logistic(x, out=y)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx = dy y (1 - y)."""
        y = saved.values["y"]
        dy *= y
        np.subtract(1, y, out=y)  # all readers are done
        dy *= y
        return dy
