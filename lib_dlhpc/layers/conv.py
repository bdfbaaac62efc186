"""Convolution in any number of dimensions, as products of matrices.

A block of outputs at a time, the inputs that each of them reads are copied into a matrix of columns: base/columns.py.
With a kernel of one element the input is that matrix. Backward with stride 1, dx is the convolution of dy with the
flipped kernel, and the columns of dy serve the gradient of the weights as well. Large convolutions of kernel 3 multiply
less: base/minimal.py. Only the input is saved for the backward pass.
"""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base import minimal
from lib_dlhpc.layers.base.by_columns import ByColumns, Pointwise
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.minimal import Minimal
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors, row_sums
from lib_dlhpc.layers.base.slices import own_shapes
from lib_dlhpc.layers.base.windows import Size, per_dimension, slide

# From which minimal filtering is faster, forward and backward: channels in 2-D and 3-D, and elements of a sample.
DEEP, DEEP_BACK, LARGE = (64, 16), (32, 16), 2048
SPARING = 1.0  # and below which part of the multiplications: not if tiles of four are of one or two outputs


class Conv(Kind):
    """y = W * x + b; x of shape (channels, *space, batch), W (outputs, channels / groups, *kernel)."""

    backward_reads = frozenset({"input"})
    product = splits_backward = True
    tensor, spatial = "product", "windows"
    output_option, weight_axes = "channels", (0, 1)
    dimensions = (3,)

    @staticmethod
    def describe(
        site: Site,
        channels: int,
        kernel: Size,
        stride: Size = 1,
        padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> Counts:
        """Return the counts; its dimension is that of the input without channels."""
        inputs, *space = site.at_least(2)
        kernel, stride, padding = per_dimension(site.name, space, kernel, stride, padding)
        for count, what in ((inputs, "input channels"), (channels, "channels")):
            if count % groups:
                raise SpecError(f"{site.name}: groups = {groups} must divide its {count} {what}.")
        weights = channels * (inputs // groups) * prod(kernel)
        output = (channels, *slide(site.name, space, kernel, stride, padding))
        window = {"kernel": kernel, "stride": stride, "padding": padding}
        return Counts(
            output,
            parameters=weights + channels * bias,
            forward_flop=2.0 * weights * prod(output[1:]),
            attributes={"channels": channels, **window, "groups": groups, "bias": bias},
        )

    @staticmethod
    def numpy_flop(layer: Layer) -> float:
        """Return the FLOP of its products."""
        outputs = layer.output_shape[1:]
        ratio = minimal.flop_ratio(outputs) if _is_minimal(layer, DEEP, outputs) else 1.0
        return layer.forward_flop * ratio

    @staticmethod
    def numpy_traffic(layer: Layer) -> float:
        """Return the elements of the columns, written and read, or of tiles."""
        if _is_minimal(layer, DEEP, layer.output_shape[1:]):
            return minimal.traffic(layer)
        kernel, (channels, *space) = layer.attributes["kernel"], layer.input_shape
        if _is_pointwise(layer):
            apart = {*layer.attributes["stride"]} != {1}
            return float(channels * prod(layer.output_shape[1:])) if apart else 0.0
        single = len(kernel) == 1  # space of one axis is one row
        rows, taps = (1, kernel) if single else (space[0], kernel[1:])
        return float(channels * prod(taps) * rows * prod(layer.output_shape[1 if single else 2 :]))

    def __init__(self, layer: Layer) -> None:
        self.window = layer.attributes
        self.inputs, *space = layer.input_shape
        self.outputs, *output = layer.output_shape
        self.space, self.output = tuple(space), tuple(output)
        kernel = tuple(self.window["kernel"])
        self.shapes: Shapes = {
            "weight": (self.outputs, self.inputs // self.window["groups"], *kernel)
        }
        if self.window["bias"]:
            self.shapes["bias"] = (self.outputs,)
        self.shapes = own_shapes(layer, self.shapes)
        self._ahead = _way(layer, DEEP, self.output)
        self._behind = _way(layer, DEEP_BACK, self.space)

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Initialize the weights: He et al. 2015, equation 10."""
        weight = weights["weight"]
        weight[...] = rng.normal(0, np.sqrt(2 / prod(weight.shape[1:])), weight.shape)
        if "bias" in weights:
            weights["bias"].fill(0)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (outputs, *space, batch)."""
        saved.values["x"] = x
        y = saved.array((self.outputs, *self.output, x.shape[-1]), x.dtype)
        self._ahead.forward(
            saved, _in_one_piece(saved, x), weights["weight"], weights.get("bias"), y
        )
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx; both gradients in one go, as they share the columns."""
        return self._back(weights, gradients, saved, dy)

    def input_gradient(self, weights: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx."""
        return self._back(weights, None, saved, dy) if saved.wants_dx else None

    def weight_gradient(self, gradients: Tensors, saved: Saved, dy: Array) -> None:
        """Write dW, the products of dy and the columns, and db."""
        self._back(None, gradients, saved, dy)

    def _back(
        self, weights: Tensors | None, gradients: Tensors | None, saved: Saved, dy: Array
    ) -> Any:
        """Return dx if there are weights, and write the gradients if there is a place for them."""
        x = weight = dx = None
        if gradients is not None:
            x = _in_one_piece(saved, saved.values["x"])
            if "bias" in gradients:
                gradients["bias"][...] = row_sums(dy.reshape(self.outputs, -1))
        if weights is not None and saved.wants_dx:
            weight = weights["weight"]
            dx = saved.others if self._behind.adds else None
            if dx is None:
                dx = saved.array((self.inputs, *self.space, dy.shape[-1]), dy.dtype)
                if self._behind.adds:
                    dx.fill(0)
        dw = self._behind.backward(saved, dy, x, weight, dx)
        if gradients is not None and dw is not None:
            gradients["weight"][...] = dw.reshape(gradients["weight"].shape)
        return dx


def _way(
    layer: Layer, deep: tuple[int, int], outputs: tuple[int, ...]
) -> Minimal | Pointwise | ByColumns:
    """Return what computes a convolution, with minimal filtering from these channels on; outputs: see _is_minimal."""
    (_, *space), (_, *output), groups = (
        layer.input_shape,
        layer.output_shape,
        layer.attributes["groups"],
    )
    window = {name: tuple(layer.attributes[name]) for name in ("kernel", "stride", "padding")}
    if _is_minimal(layer, deep, outputs):
        return Minimal(tuple(space), tuple(output), window["padding"])
    if _is_pointwise(layer):
        return Pointwise(window["stride"], groups)
    return ByColumns(tuple(space), tuple(output), window, groups)


def _is_minimal(layer: Layer, deep: tuple[int, int], outputs: tuple[int, ...]) -> bool:
    """Return whether minimal filtering computes a convolution: of kernel 3 and stride 1, large and not grouped.

    outputs: the space that it writes, backward that of the inputs.
    """
    window, (channels, *space) = layer.attributes, layer.input_shape
    fits = {*window["kernel"]} == {3} and {*window["stride"], window["groups"]} == {1}
    enough = min(channels, layer.output_shape[0]) >= deep[len(space) > 2]
    large = enough and prod(layer.input_shape) >= LARGE
    return fits and len(space) > 1 and large and minimal.flop_ratio(outputs) < SPARING


def _is_pointwise(layer: Layer) -> bool:
    """Return whether each output reads one input, so that these inputs are their own matrix of columns."""
    return {*layer.attributes["kernel"]} == {1}


def _in_one_piece(saved: Saved, x: Array) -> Array:
    """Return x, contiguous; samples in another layout are copied, and the copy is not saved."""
    if x.flags.c_contiguous:
        return x
    copy = saved.array(x.shape, x.dtype)
    copy[...] = x
    return copy
