"""The largest element of each window."""

from functools import partial, reduce
from math import inf
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.layers.base.kind import Layer
from lib_dlhpc.layers.base.saved import PART, Array, Saved, Tensors, parts
from lib_dlhpc.layers.base.windows import Pool, Tap, taps, whole

LARGE = 2 * PART  # elements of a part: calls for each axis and tap cost more than misses of L2


class _Step(NamedTuple):
    extents: tuple[int, ...]  # after it
    taps: list[Tap]
    inside: bool  # no window reaches into the padding
    apart: bool  # an input is in one window at most

    def maxima(self, saved: Saved, x: Array) -> Array:
        """Return the largest element of each window."""
        found = saved.array((len(x), *self.extents, x.shape[-1]), x.dtype)
        if self.inside:
            return reduce(partial(np.maximum, out=found), [x[tap.there] for tap in self.taps])
        found.fill(-inf)
        for tap in self.taps:
            most = found[tap.here]
            np.maximum(most, x[tap.there], out=most)
        return found

    def add_back(self, saved: Saved, dx: Array, dy: Array, x: Array, y: Array) -> None:
        """Add the gradient of x to dx; what one tap has taken of dy is removed for the next."""
        for tap in self.taps:
            given = dy[tap.here]
            if not (self.inside and tap is self.taps[-1]):  # to which all that is left belongs
                most = x[tap.there] == y[tap.here]
                given = np.multiply(given, most, out=saved.array(given.shape, dy.dtype))
                dy[tap.here] -= given
            if self.apart:
                dx[tap.there] = given
            else:
                dx[tap.there] += given


class MaxPool(Pool):
    """The largest element of each window, along one axis after the other, as rows of the first axes are long.

    The gradient goes to the first of equal ones along the last axis, then along the one before it, and so on.
    """

    padding_value = -inf

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        window, extents = layer.attributes, list(layer.input_shape[1:])
        first = [window[name][0] for name in ("stride", "padding")]
        self.rows = 1  # of windows that share no channel, so that parts are small
        if first == [window["kernel"][0], 0] and not extents[0] % first[0]:
            self.rows = self.output[0]
            extents[0] = first[0]
        self.steps: list[_Step] = []
        for axis, extent in enumerate(self.output):
            along = {
                name: tuple(window[name][k] if k == axis else unused for k in range(len(extents)))
                for name, unused in (("kernel", 1), ("stride", 1), ("padding", 0))
            }
            space = tuple(extents)
            extents[axis] = extent if axis else extent // self.rows
            found = taps(space, whole(tuple(extents)), along)
            inside = not any(tap.border for tap in found)
            apart = along["stride"][axis] >= along["kernel"][axis]
            self.steps.append(_Step(tuple(extents), found, inside, apart))

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (channels, *space, batch)."""
        y = saved.array((len(x), *self.output, x.shape[-1]), x.dtype)
        saved.values.update(x=x, y=y)
        below, above = self._by_rows(x), self._by_rows(y)
        for part in parts(below, LARGE):
            above[part] = self._maxima(saved, below[part])[-1]
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        x = saved.values["x"]
        dx = saved.array(x.shape, dy.dtype)
        below, down, up = self._by_rows(x), self._by_rows(dy), self._by_rows(dx)
        for part in parts(below, LARGE):
            self._back(saved, up[part], down[part], below[part])
        return dx

    def _back(self, saved: Saved, dx: Array, dy: Array, x: Array) -> None:
        """Write dx of a part."""
        maxima = self._maxima(saved, x)
        for axis in reversed(range(len(self.steps))):
            y, x = maxima.pop(), maxima[-1]
            given, dy = dy, saved.array(x.shape, dy.dtype) if axis else dx
            dy.fill(0)
            self.steps[axis].add_back(saved, dy, given, x, y)

    def _maxima(self, saved: Saved, x: Array) -> list[Array]:
        """Return x, and the maxima along the first axis, the first two and so on."""
        found = [x]
        for step in self.steps:
            found.append(step.maxima(saved, found[-1]))
        return found

    def _by_rows(self, x: Array) -> Array:
        """Return x with each row of windows as a channel of its own, if they lie side by side along the first axis."""
        channels, extent, *rest = x.shape
        return x.reshape(channels * self.rows, extent // self.rows, *rest)
