"""Convolution in any number of dimensions, as products of matrices.

The inputs of each output are copied into a matrix of columns (im2col), a block of outputs at a time, so
that the block stays in cache while it is multiplied (Chellapilla et al. 2006, "High performance
convolutional neural networks for document processing"). With a kernel of one element and stride 1 the input is
that matrix. Large convolutions of kernel 3 multiply less: base/minimal.py. Only the input is saved for the backward
pass.
"""

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base import minimal
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors, row_sums
from lib_dlhpc.layers.base.slices import own_shapes
from lib_dlhpc.layers.base.windows import Size, Tap, blocks, per_dimension, slide, taps, whole

CACHE = 1024 * 1024  # bytes of columns: fits the L2 cache
DEEP, LARGE = 16, 2048  # channels, and elements of a sample, from which minimal filtering is faster
UNPACKED = 10**6  # multiplications in products that OpenBLAS computes without copies (AVX-512)
FEW = 256  # columns of a part below which that is slower than the copy
APART = 16  # padding elements between two rows of columns: power-of-2 strides cause cache conflicts


class _Block(NamedTuple):
    positions: slice  # of the outputs, one column each
    shape: tuple[int, ...]
    reads: tuple[slice, ...]  # the inputs that it reads
    covers: tuple[int, ...]  # extents of its windows, which may reach into the padding
    inside: tuple[slice, ...]  # where these inputs are in it
    taps: list[Tap]  # relative to these inputs, so most blocks share them

    @property
    def padded(self) -> bool:
        """Whether its windows reach into the padding."""
        return tuple(part.stop - part.start for part in self.reads[1:]) != self.covers


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
        axes = len(layer.output_shape) - 1
        return layer.forward_flop * (minimal.flop_ratio(axes) if _is_minimal(layer) else 1.0)

    @staticmethod
    def numpy_traffic(layer: Layer) -> float:
        """Return the elements of the im2col matrix, written and read (Chellapilla et al. 2006), or of tiles."""
        if _is_minimal(layer):
            return minimal.traffic(layer)
        if _is_pointwise(layer):
            return 0.0
        return layer.forward_flop * layer.attributes["groups"] / (2 * layer.output_shape[0])

    def __init__(self, layer: Layer) -> None:
        self.window = layer.attributes
        self.inputs, *space = layer.input_shape
        self.outputs, *output = layer.output_shape
        self.space, self.output, self.groups = tuple(space), tuple(output), self.window["groups"]
        kernel = tuple(self.window["kernel"])
        self.many = prod(kernel)
        self.shapes: Shapes = {"weight": (self.outputs, self.inputs // self.groups, *kernel)}
        if self.window["bias"]:
            self.shapes["bias"] = (self.outputs,)
        self.shapes = own_shapes(layer, self.shapes)
        self._plans: dict[int, list[_Block]] = {}
        steps = zip(self.window["stride"], kernel, strict=True)
        self._apart = all(stride >= width for stride, width in steps)  # windows share no input
        self._pointwise = _is_pointwise(layer)
        self._ahead = self._behind = None
        if _is_minimal(layer):
            padding = self.window["padding"]
            self._ahead = minimal.Filter(self.space, self.output, padding)
            turned = tuple(2 - pad for pad in padding)
            self._behind = minimal.Filter(self.output, self.space, turned)

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Initialize the weights: He et al. 2015, equation 10."""
        weight = weights["weight"]
        weight[...] = rng.normal(0, np.sqrt(2 / prod(weight.shape[1:])), weight.shape)
        if "bias" in weights:
            weights["bias"].fill(0)

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y of shape (outputs, *space, batch)."""
        saved.values["x"] = x
        x = _in_one_piece(saved, x)
        y = saved.array((self.outputs, *self.output, x.shape[-1]), x.dtype)
        if self._ahead:
            minimal.forward(saved, self._ahead, x, weights["weight"], weights.get("bias"), y)
            return y
        matrices, products = self._by_group(weights["weight"]), self._by_group(y)
        if self._pointwise:
            _multiply(matrices, self._by_group(x), products)
        else:
            for block, columns, _ in self._columns(saved, x.shape[-1], x.dtype, x):
                _multiply(matrices, columns, products[..., block.positions])
        if "bias" in weights:
            rows = y.reshape(self.outputs, -1)
            rows += weights["bias"][:, None]
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx; both gradients in one go, as they share the columns."""
        return self._back(weights, gradients, saved, dy)

    def input_gradient(self, weights: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx: scatter-add the output gradients to the inputs they read."""
        return self._back(weights, None, saved, dy) if saved.wants_dx else None

    def weight_gradient(self, gradients: Tensors, saved: Saved, dy: Array) -> None:
        """Write dW, the products of dy and the columns, and db."""
        self._back(None, gradients, saved, dy)

    def _back(
        self, weights: Tensors | None, gradients: Tensors | None, saved: Saved, dy: Array
    ) -> Any:
        """Return dx if there are weights, and write the gradients if there is a place for them."""
        weight_dx = x_dw = None
        if weights is not None and saved.wants_dx:
            dx = saved.array((self.inputs, *self.space, dy.shape[-1]), dy.dtype)
            weight_dx = weights["weight"], dx
        if gradients is not None:
            x_dw = _in_one_piece(saved, saved.values["x"]), gradients["weight"]
            if "bias" in gradients:
                gradients["bias"][...] = row_sums(dy.reshape(self.outputs, -1))
        if self._behind:
            minimal.backward(saved, self._behind, self.inputs, dy, weight_dx, x_dw)
        elif self._pointwise:
            if x_dw is not None:
                x, dw = map(self._by_group, x_dw)
                dw[...] = _outer(saved, self._by_group(dy), x)
            if weight_dx is not None:
                turned = self._by_group(weight_dx[0]).swapaxes(1, 2)
                _multiply(turned, self._by_group(dy), self._by_group(dx))
        else:
            self._back_by_columns(saved, dy, weight_dx, x_dw)
        return None if weight_dx is None else dx

    def _back_by_columns(
        self,
        saved: Saved,
        dy: Array,
        weight_dx: tuple[Array, Array] | None,
        x_dw: tuple[Array, Array] | None,
    ) -> None:
        """Write dx, dw or both; columns of x become those of dx, which are scatter-added."""
        dys, batch = self._by_group(dy), dy.shape[-1]
        if weight_dx is not None:
            turned, dx = self._by_group(weight_dx[0]).swapaxes(1, 2), weight_dx[1]
            dx.fill(0)
        if x_dw is not None:
            dws = self._by_group(x_dw[1])
            dws.fill(0)
        x = None if x_dw is None else x_dw[0]
        for block, columns, grid in self._columns(saved, batch, dy.dtype, x):
            part = dys[..., block.positions]
            if x_dw is not None:
                dws += _outer(saved, part, columns)
            if weight_dx is not None:
                _multiply(turned, part, columns)
                near = dx[block.reads]
                for tap in block.taps:
                    column = grid[:, tap.number][tap.here]
                    if self._apart:
                        near[tap.there] = column
                    else:
                        near[tap.there] += column

    def _columns(
        self, saved: Saved, batch: int, dtype: Any, x: Array | None
    ) -> Iterator[tuple[_Block, Array, Array]]:
        """Yield each block with its columns, in two views of the same memory.

        (groups, channels / groups * taps, positions) and (channels, taps, *space, batch). x: what they are filled with.
        """
        itemsize = np.dtype(dtype).itemsize
        rows, plan = self.inputs * self.many, self._plan(batch, itemsize)
        long = max((prod(block.shape) for block in plan), default=0) + APART
        # All convolutions request the same size, so they share the memory.
        memory = saved.array((max(rows * long, CACHE // itemsize),), dtype)
        around = [prod(block.covers) for block in plan if block.padded and x is not None]
        padded = saved.array((self.inputs * max(around, default=0) * batch,), dtype)
        for block in plan:
            positions = prod(block.shape)
            columns = memory[: rows * long].reshape(rows, long)[:, :positions]
            grid = columns.reshape(self.inputs, self.many, *block.shape)
            if x is not None:
                self._copy_windows(x, block, padded, grid)
            yield block, columns.reshape(self.groups, rows // self.groups, positions), grid

    def _copy_windows(self, x: Array, block: _Block, memory: Array, grid: Array) -> None:
        """Copy what each tap reads of x, or of its copy with zeros around where windows reach into the padding."""
        source = x[block.reads]
        if block.padded:
            shape = (self.inputs, *block.covers, x.shape[-1])
            source = memory[: prod(shape)].reshape(shape)
            source.fill(0)
            source[block.inside] = x[block.reads]
        channel, *steps, sample = source.strides
        moves = [stride * step for stride, step in zip(self.window["stride"], steps, strict=True)]
        strides = (channel, *steps, *moves, sample)
        into = grid.reshape(self.inputs, *self.window["kernel"], *block.shape)
        into[...] = as_strided(source, into.shape, strides, writeable=False)

    def _plan(self, batch: int, itemsize: int) -> list[_Block]:
        """Return the blocks for a batch size, cached."""
        if batch not in self._plans:
            plan = self._plans[batch] = []
            row, done = CACHE // (self.inputs * self.many * itemsize) - APART, 0
            known: dict[Any, list[Tap]] = {}
            for block in blocks(self.output, max(0, row) // max(1, batch)):
                extents = tuple(part.stop - part.start for part in block)
                stop = done + prod(extents) * batch
                reads, covers, outside = self._reads(block)
                space = tuple(part.stop - part.start for part in reads)
                if (extents, space, outside) not in known:
                    window = {**self.window, "padding": outside}
                    known[extents, space, outside] = taps(space, whole(extents), window)
                found = known[extents, space, outside]
                inside = tuple(slice(pad, pad + n) for pad, n in zip(outside, space, strict=True))
                where, inside = (slice(None), *reads), (slice(None), *inside)
                shape = (*extents, batch)
                plan.append(_Block(slice(done, stop), shape, where, covers, inside, found))
                done = stop
        return self._plans[batch]

    def _reads(self, block: tuple[slice, ...]) -> tuple[tuple[Any, ...], ...]:
        """Return what a block of outputs reads, the extents that its windows cover, and the padding before."""
        reads, covers, outside = [], [], []
        options = (self.window[name] for name in ("kernel", "stride", "padding"))
        for part, extent, width, stride, padding in zip(block, self.space, *options, strict=True):
            first, last = part.start * stride - padding, (part.stop - 1) * stride - padding + width
            start = max(0, first)
            reads.append(slice(start, max(start, min(extent, last))))
            covers.append(max(0, last - first))  # of no outputs: none
            outside.append(start - first)
        return tuple(reads), tuple(covers), tuple(outside)

    def _by_group(self, tensor: Array) -> Array:
        """Return a view as (groups, channels of a group, all else)."""
        size = tensor.size // max(1, len(tensor))
        return tensor.reshape(self.groups, len(tensor) // self.groups, size)


def _is_minimal(layer: Layer) -> bool:
    """Return whether minimal filtering computes a convolution: of kernel 3 and stride 1, large and not grouped."""
    window = layer.attributes
    fits = {*window["kernel"]} == {3} and {*window["stride"], window["groups"]} == {1}
    channels = min(layer.input_shape[0], layer.output_shape[0])
    return fits and channels >= DEEP and prod(layer.input_shape) >= LARGE


def _is_pointwise(layer: Layer) -> bool:
    """Return whether each output reads one input, so that the input is its own matrix of columns."""
    return {*layer.attributes["kernel"], *layer.attributes["stride"]} == {1}


def _multiply(left: Array, right: Array, out: Array) -> None:
    """Write left right, of stacked matrices."""
    size = prod(left.shape[1:])
    for part, product in zip(_parts(right, size), _parts(out, size), strict=True):
        np.matmul(left[:, None], part, out=product)


def _outer(saved: Saved, left: Array, right: Array) -> Array:
    """Return left right', of stacked matrices; of many rows and few columns, which is faster than its transpose."""
    if left.shape[1] < right.shape[1]:
        return _outer(saved, right, left).swapaxes(1, 2)
    shape = left.shape[1], right.shape[1]
    total = np.zeros((len(left), *shape), left.dtype)
    for a, b in zip(_parts(left, prod(shape)), _parts(right, prod(shape)), strict=True):
        products = saved.array((*a.shape[:2], *shape), a.dtype)
        total += np.matmul(a, b.swapaxes(2, 3), out=products).sum(axis=1)
    return total


def _parts(matrices: Array, size: int) -> list[Array]:
    """Return the columns in parts, for products of `size` multiplications a column, and the rest of them.

    (stacked, parts, rows, columns); a power of 2, so that parts begin with a cache line. All in one, if that is few.
    """
    stacked, rows, columns = matrices.shape
    most = 1 << (UNPACKED // max(1, size)).bit_length() >> 1
    if most < FEW or columns <= most:
        return [matrices[:, None]]
    whole = columns - columns % most
    parts = matrices[..., :whole].reshape(stacked, rows, -1, most).swapaxes(1, 2)
    return [parts, matrices[:, None, :, whole:]]


def _in_one_piece(saved: Saved, x: Array) -> Array:
    """Return x, contiguous; samples in another layout are copied, and the copy is not saved."""
    if x.flags.c_contiguous:
        return x
    copy = saved.array(x.shape, x.dtype)
    copy[...] = x
    return copy
