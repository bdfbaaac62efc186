"""The largest element of each window."""

from functools import partial, reduce
from math import inf
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.layers.base.kind import Layer
from lib_dlhpc.layers.base.saved import PART, Array, Saved, Tensors, parts
from lib_dlhpc.layers.base.windows import Pool, Tap, taps, whole

LARGE = 3 * PART // 2  # elements of a part: calls for each axis and tap cost more than misses of L2


class _Step(NamedTuple):
    extents: tuple[int, ...]  # after it
    taps: list[Tap]
    inside: bool  # no window reaches into the padding
    apart: bool  # an input is in one window at most
    all_read: bool  # and in one at least

    def maxima(self, x: Array, out: Array) -> Array:
        """Return the largest element of each window: `out`, or the inputs themselves."""
        if self.inside:
            return reduce(partial(np.maximum, out=out), [x[tap.there] for tap in self.taps])
        out.fill(-inf)
        for tap in self.taps:
            most = out[tap.here]
            np.maximum(most, x[tap.there], out=most)
        return out

    @property
    def writes(self) -> bool:
        """Whether maxima are written to an array of their own."""
        return len(self.taps) > 1 or not self.inside

    def back(self, saved: Saved, dx: Array, dy: Array, x: Array, y: Array) -> None:
        """Write the gradient of x; what one tap has taken of dy is removed for the next."""
        if not (self.apart and self.all_read):
            dx.fill(0)
        for tap in self.taps:
            given, into = dy[tap.here], dx[tap.there]
            if not (self.inside and tap is self.taps[-1]):  # to which all that is left belongs
                rest, most = given, x[tap.there] == y[tap.here]
                given = into if self.apart else saved.array(rest.shape, rest.dtype)
                np.multiply(rest, most, out=given)
                rest -= given
            if not self.apart:
                into += given
            elif given is not into:
                into[...] = given


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
            read = sum(tap.here[1 + axis].stop - tap.here[1 + axis].start for tap in found)
            self.steps.append(_Step(tuple(extents), found, inside, apart, read >= space[axis]))

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (channels, *space, batch)."""
        y = saved.array((len(x), *self.output, x.shape[-1]), x.dtype)
        saved.values.update(x=x, y=y)
        below, above = self._by_rows(x), self._by_rows(y)
        rooms = self._rooms(saved, below)
        for part in parts(below, LARGE):
            found = self.steps[-1].maxima(self._maxima(below[part], rooms)[-1], above[part])
            if not self.steps[-1].writes:
                above[part] = found
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        x = saved.values["x"]
        dx = saved.array(x.shape, dy.dtype)
        below, above, down, up = map(self._by_rows, (x, saved.values["y"], dy, dx))
        maxima_rooms, error_rooms = (self._rooms(saved, below) for _ in range(2))
        for part in parts(below, LARGE):
            maxima = [*self._maxima(below[part], maxima_rooms), above[part]]
            errors = [up[part], *(room[: len(below[part])] for room in error_rooms), down[part]]
            for axis in reversed(range(len(self.steps))):
                self.steps[axis].back(saved, *errors[axis : axis + 2], *maxima[axis : axis + 2])
        return dx

    def _maxima(self, x: Array, rooms: list[Array]) -> list[Array]:
        """Return x, and the maxima along the first axis, the first two and so on, but not all."""
        found = [x]
        for step, room in zip(self.steps[:-1], rooms, strict=True):
            found.append(step.maxima(found[-1], room[: len(x)]))
        return found

    def _rooms(self, saved: Saved, x: Array) -> list[Array]:
        """Return room for a part's maxima, axis after axis."""
        most = next((part.stop for part in parts(x, LARGE)), 0)
        shapes = ((min(most, len(x)), *step.extents, x.shape[-1]) for step in self.steps[:-1])
        return [saved.array(shape, x.dtype) for shape in shapes]

    def _by_rows(self, x: Array) -> Array:
        """Return x with each row of windows as a channel of its own, if they lie side by side along the first axis."""
        channels, extent, *rest = x.shape
        return x.reshape(channels * self.rows, extent // self.rows, *rest)
