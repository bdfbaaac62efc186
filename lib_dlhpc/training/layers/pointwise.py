"""Elementwise layers."""

import zlib
from math import pi, prod, sqrt
from typing import Any

import numpy as np

from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.layers.saved import PART, Array, Context, Saved, Tensors, chunks
from lib_dlhpc.training.layers.slices import Part, part_of

ROOT = sqrt(2 / pi)  # a Python float, so that float32 arrays stay float32


class Relu:
    """max(0, x)."""

    def __init__(self, layer: Layer) -> None:
        pass

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y."""
        y = saved.values["y"] = _output(saved, x)
        return np.maximum(x, 0, out=y)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        y = saved.values["y"]
        for down, own in chunks(dy, y):
            down *= own > 0
        return dy


class LeakyRelu:
    """x where x > 0, slope * x elsewhere."""

    def __init__(self, layer: Layer) -> None:
        self.slope = layer.attributes["slope"]

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y."""
        y = saved.values["y"] = _output(saved, x)
        for up, own in chunks(x, y):
            np.multiply(up, _slopes(up, self.slope), out=own)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx; the sign of y is that of x."""
        y = saved.values["y"]
        for down, own in chunks(dy, y):
            down *= _slopes(own, self.slope)
        return dy


class Tanh:
    """The hyperbolic tangent."""

    def __init__(self, layer: Layer) -> None:
        pass

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y."""
        y = saved.values["y"] = _output(saved, x)
        return np.tanh(x, out=y)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx = dy (1 - y^2)."""
        y = saved.values["y"]  # all readers are done
        y *= y
        np.subtract(1, y, out=y)
        dy *= y
        return dy


class Sigmoid:
    """1 / (1 + exp(-x))."""

    def __init__(self, layer: Layer) -> None:
        pass

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y, computed with tanh, which does not overflow."""
        y = saved.values["y"] = _output(saved, x)
        return sigmoid(x, out=y)

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx = dy y (1 - y)."""
        y = saved.values["y"]
        dy *= y
        np.subtract(1, y, out=y)  # all readers are done
        dy *= y
        return dy


class Gelu:
    """x times the normal distribution function, in its tanh form (Hendrycks and Gimpel 2016, section 2)."""

    def __init__(self, layer: Layer) -> None:
        pass

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y; x is saved, as y does not determine it."""
        saved.values["x"] = x
        y = saved.array(x.shape, x.dtype)
        for up, own in chunks(x, y):
            np.multiply(up, 0.5 * (1 + self._tanh(up)), out=own)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        for down, x in chunks(dy, saved.values["x"]):
            t = self._tanh(x)
            inner = ROOT * (1 + 3 * 0.044715 * x * x)
            down *= 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner
        return dy

    @staticmethod
    def _tanh(x: Array) -> Array:
        return np.tanh(ROOT * (x + 0.044715 * x * x * x))


class Dropout:
    """Zero a fraction of the elements and scale up the others; the same elements on any number of ranks."""

    def __init__(self, layer: Layer) -> None:
        self.rate, self.stream = layer.attributes["rate"], stream_of(layer)
        self.images = len(layer.input_shape) >= 3
        self.elements = layer.attributes.get("elements")
        self.whole = layer.attributes.get("whole", layer).output_shape

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y."""
        if not saved.context.training or not self.rate:
            saved.values["mask"] = None
            return x
        batch = x.shape[-1 if self.images else 0]
        shape = (batch, *self.whole)
        mask = survivors(saved.context, self.stream, shape, self.rate, self.elements)
        saved.values["mask"] = mask = np.moveaxis(mask, 0, -1) if self.images else mask
        y = _output(saved, x)
        np.multiply(x, mask, out=y)
        y *= x.dtype.type(1 / (1 - self.rate))
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        mask = saved.values["mask"]
        if mask is not None:
            dy *= mask
            dy *= dy.dtype.type(1 / (1 - self.rate))
        return dy


def survivors(
    context: Context, stream: int, shape: tuple[int, ...], rate: float, elements: Part | None = None
) -> Array:
    """Return which elements of (samples, ...) survive, a fraction 1 - rate to the nearest 2^-16.

    elements: the part of each sample that is needed. A counter-based generator (Salmon et al. 2011) starts at
    the sample's index in the global batch, so the mask does not depend on the partition over ranks.
    """
    many = prod(shape[1:])
    blocks = -(-many // 16)  # a counter value gives 16 numbers of 16 bits
    key = context.seed + (((context.step << 32) + stream) << 64)
    generator = np.random.Philox(counter=context.first_sample * blocks, key=key)
    part = None if elements is None else (elements[0] + 1, elements[1])
    mask = np.empty((shape[0], *part_of(np.empty((0, *shape[1:])), part).shape[1:]), np.bool_)
    step = max(1, PART // max(1, many))  # samples at a time, so that only the mask is large
    for first in range(0, shape[0], step):
        own = mask[first : first + step]
        numbers = generator.random_raw(len(own) * blocks * 4).view(np.uint16)
        stays = numbers.reshape(len(own), blocks * 16)[:, :many] >= round(rate * 65536)
        own[...] = part_of(stays.reshape(len(own), *shape[1:]), part)
    return mask


def stream_of(layer: Layer) -> int:
    """Return the layer's own random stream."""
    return zlib.crc32(layer.name.encode())


def sigmoid(x: Array, out: Array | None = None) -> Array:
    """Return 1 / (1 + exp(-x)), which never overflows in this form."""
    y = np.multiply(x, 0.5, out=out)
    y = np.tanh(y, out=out if out is not None else y)
    y += 1
    y *= 0.5
    return y


def _output(saved: Saved, x: Array) -> Array:
    return x if saved.inplace else saved.array(x.shape, x.dtype)


def _slopes(x: Array, slope: float) -> Array:
    return np.where(x > 0, x.dtype.type(1), x.dtype.type(slope))
