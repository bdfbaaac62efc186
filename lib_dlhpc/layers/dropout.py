"""Dropout: zero a fraction of the elements, in place."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.elementwise import InPlace, in_place
from lib_dlhpc.layers.base.kind import Counts, Layer, Site
from lib_dlhpc.layers.base.masks import stream_of, survivors
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors
from lib_dlhpc.layers.base.slices import tokens_of, whole_shape


class Dropout(InPlace):
    """Zero a fraction of the elements and scale up the others; the same elements on any number of ranks."""

    @staticmethod
    def describe(site: Site, rate: float = 0.5, keep: bool = False) -> Counts:
        """Return the counts, with a mask of a byte an element; keep = true: store the output for backward."""
        elements = prod(site.shape)
        return Counts(
            site.shape,
            stored=elements * keep,
            mask_bytes=elements if rate else 0,
            attributes={"rate": rate},
        )

    @staticmethod
    def rate_key(layer: Layer) -> str:
        """Return the name of its measured rate: without random numbers it costs little."""
        return layer.kind if layer.attributes.get("rate") else "dropout_of_none"

    def __init__(self, layer: Layer) -> None:
        self.rate, self.stream = layer.attributes["rate"], stream_of(layer)
        self.images = len(layer.input_shape) >= 3
        self.parts = tokens_of(layer), layer.attributes.get("elements")
        self.whole = whole_shape(layer)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y."""
        if not saved.context.training or not self.rate:
            saved.values["mask"] = None
            return x
        batch = x.shape[-1 if self.images else 0]
        shape = (batch, *self.whole)
        mask = survivors(saved.context, self.stream, shape, self.rate, *self.parts)
        saved.values["mask"] = mask = np.moveaxis(mask, 0, -1) if self.images else mask
        y = in_place(saved, x)
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
