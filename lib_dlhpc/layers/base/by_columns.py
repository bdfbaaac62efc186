"""Convolutions as products with the columns that their outputs read, or with the input where it is these columns."""

from typing import Any

import numpy as np

from lib_dlhpc.layers.base.columns import Columns
from lib_dlhpc.layers.base.products import add_outer, multiply
from lib_dlhpc.layers.base.saved import Array, Saved


class ByColumns:
    """A convolution from one space to another. window: kernel, stride and padding. groups: of channels.

    With stride 1, dx is the convolution of dy with the flipped kernel, and the columns of dy serve dW as well. With
    strides, dx is added to.
    """

    def __init__(
        self, space: tuple[int, ...], output: tuple[int, ...], window: dict[str, Any], groups: int
    ) -> None:
        self.groups = groups
        self.ahead, self.behind = Columns(space, output, window, groups), None
        if {*window["stride"]} == {1}:
            sizes = zip(window["kernel"], window["padding"], strict=True)
            turned = {**window, "padding": tuple(width - 1 - pad for width, pad in sizes)}
            self.behind = Columns(output, space, turned, groups)
        self.adds = self.behind is None

    def forward(self, saved: Saved, x: Array, weight: Array, bias: Array | None, y: Array) -> None:
        """Write y = W * x + b."""
        _through(saved, self.ahead, x, weight=weight, y=y)
        add(y, bias)

    def backward(
        self, saved: Saved, dy: Array, x: Array | None, weight: Array | None, dx: Array | None
    ) -> Array | None:
        """Write dx or add to it, if there is one, and return dW, if there is an x."""
        turned = dw = None
        if weight is not None and dx is not None:
            if self.behind:
                turned = flipped(weight, self.groups)
            else:
                self.ahead.add_back(saved, self.ahead.matrix(weight).swapaxes(1, 2), dy, dx)
        shared = self.behind is not None and x is not None and len(x) >= len(dy)
        if self.behind and (turned is not None or shared):
            dw = _through(saved, self.behind, dy, weight=turned, y=dx, dy=x if shared else None)
        if x is not None and not shared:
            return _through(saved, self.ahead, x, dy=dy)
        return None if dw is None else flipped(dw, self.groups)


class Pointwise:
    """A convolution of kernel 1. With strides, dx is added to, as not all inputs are read."""

    def __init__(self, stride: tuple[int, ...], groups: int) -> None:
        self.groups, self.adds = groups, {*stride} != {1}
        self.reads = (slice(None), *(slice(None, None, step) for step in stride))

    def forward(self, saved: Saved, x: Array, weight: Array, bias: Array | None, y: Array) -> None:
        """Write y = W x + b."""
        multiply(self._by_group(weight), self._by_group(self._read(saved, x)), self._by_group(y))
        add(y, bias)

    def backward(
        self, saved: Saved, dy: Array, x: Array | None, weight: Array | None, dx: Array | None
    ) -> Array | None:
        """Write dx or add to it, if there is one, and return dW, if there is an x."""
        errors = self._by_group(dy)
        if weight is not None and dx is not None:
            part = saved.array(dx[self.reads].shape, dx.dtype) if self.adds else dx
            multiply(self._by_group(weight).swapaxes(2, 3), errors, self._by_group(part))
            if self.adds:
                dx[self.reads] += part
        if x is None:
            return None
        inputs = self._by_group(self._read(saved, x))
        dw = np.zeros((self.groups, errors.shape[2], inputs.shape[2]), x.dtype)
        add_outer(saved, errors, inputs, dw)
        return dw

    def _read(self, saved: Saved, x: Array) -> Array:
        """Return the inputs that are read, contiguous."""
        if not self.adds:
            return x
        copy = saved.array(x[self.reads].shape, x.dtype)
        copy[...] = x[self.reads]
        return copy

    def _by_group(self, tensor: Array) -> Array:
        """Return a view as (groups, 1, channels of a group, all else)."""
        size = tensor.size // max(1, len(tensor))
        return tensor.reshape(self.groups, 1, len(tensor) // self.groups, size)


def _through(
    saved: Saved,
    columns: Columns,
    x: Array,
    weight: Array | None = None,
    y: Array | None = None,
    dy: Array | None = None,
) -> Array | None:
    """Write y = W * x, if there is one, and return dW, if there is a dy: both from the columns of x."""
    total = None
    if weight is not None and y is not None:
        matrix, outputs = columns.matrix(weight)[:, None], columns.by_rows(y)
    if dy is not None:
        errors = columns.by_rows(dy)
        height = columns.matrix_height(len(x))
        total = np.zeros((columns.groups, height, errors.shape[1]), x.dtype)
    for block, part in columns.read(saved, x):
        if total is not None:
            add_outer(saved, part, block.of(errors), total)
        if weight is not None:
            multiply(matrix, part, block.of(outputs))
    return None if total is None else columns.weight(total)


def flipped(weight: Array, groups: int) -> Array:
    """Return the weights of the convolution from dy to dx: (inputs, outputs of a group, *kernel), or back."""
    outputs, inputs, *kernel = weight.shape
    apart = weight.reshape(groups, outputs // groups, inputs, -1)[..., ::-1]
    return apart.swapaxes(1, 2).reshape(groups * inputs, outputs // groups, *kernel)


def add(y: Array, bias: Array | None) -> None:
    """Add the bias of each channel, if there is one."""
    if bias is not None:
        rows = y.reshape(len(y), -1)
        rows += bias[:, None]
