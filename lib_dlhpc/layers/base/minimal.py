"""Convolutions of kernel 3 and stride 1 by minimal filtering: fewer multiplications than the definition has.

Along an axis, four outputs need 6 multiplications instead of 12: F(4, 3) of Winograd (1980, "Arithmetic complexity of
computations"; Lavin and Gray 2016, "Fast algorithms for convolutional neural networks", section 4). With * elementwise,

    y = A' ((G w) * (B' x))    x: a tile of 6 inputs, 4 after the tile before it; y: its 4 outputs

The transforms evaluate polynomials at 0, 1, -1, 2, -1/2 and infinity: such points have small rounding errors (Barabasz
et al. 2020, "Error analysis and improving the accuracy of Winograd convolution for deep neural networks").

Tiles lie along all axes but the first. Along the first, rows of outputs share those of inputs, as in columns.py. So
each of the 6 elements of a tile, 36 in 3-D, is a product of matrices, and so are the transforms:

    B' x of row 0   | channels     matrix of output row 0
            row 1   |           |  and of row 1
            row 2   |           |
            row 3               |

Backward, dx is the convolution of dy with the flipped kernel, and the gradient of its G w is (B' dy) * (A x).
"""

from collections.abc import Iterator
from functools import cache, reduce
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lib_dlhpc.layers.base.by_columns import add
from lib_dlhpc.layers.base.columns import Block, Columns, copy
from lib_dlhpc.layers.base.kind import Layer
from lib_dlhpc.layers.base.products import FEW, UNPACKED, add_outer, multiply
from lib_dlhpc.layers.base.saved import Array, Saved
from lib_dlhpc.layers.base.windows import Tap, taps

# Bytes of the tiles of a block: more than L2 holds, as its first and last rows are read again.
CACHE = 4 * 1024 * 1024
PART = 1024 * 1024  # of a part that is transformed at once
# Tiles in a row, below which products are faster of all rows than of one: small ones, and those that OpenBLAS copies.
NARROW, MANY = 32, 128
OUTPUTS, INPUTS, TAPS = 4, 6, 3  # of a tile along an axis
# fmt: off
A = ((1, 0, 0, 0), (1, 1, 1, 1), (1, -1, 1, -1), (1, 2, 4, 8), (1, -1/2, 1/4, -1/8), (0, 0, 0, 1))
G = ((1, 0, 0), (-1/3, -1/3, -1/3), (1/3, -1/3, 1/3), (1/15, 2/15, 4/15), (-16/15, 8/15, -4/15), (0, 0, 1))
B_T = ((1, 3/2, -2, -3/2, 1, 0), (0, -1, -5/2, -1/2, 1, 0), (0, 1, 1/2, -5/2, 1, 0),
       (0, -1/2, -1, 1/2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 1, 3/2, -2, -3/2, 1))
# fmt: on


class Minimal:
    """A convolution from one space to another, with this many zeros around its inputs."""

    adds = False  # dx is written

    def __init__(
        self, space: tuple[int, ...], output: tuple[int, ...], padding: tuple[int, ...]
    ) -> None:
        self.ahead = _Tiles(space, output, padding)
        self.behind = _Tiles(output, space, tuple(TAPS - 1 - pad for pad in padding))

    def forward(self, saved: Saved, x: Array, weight: Array, bias: Array | None, y: Array) -> None:
        """Write y = W * x + b."""
        own, size = self.ahead, (len(y), len(x))
        apart = own.kernels(saved, weight.reshape(prod(size), -1))
        apart = apart.reshape(own.elements, TAPS, *size).swapaxes(1, 2)
        by_row = saved.array(apart.shape, weight.dtype)
        by_row[...] = apart
        matrices = by_row.reshape(own.elements, 1, len(y), TAPS * len(x))
        for block, tiles in own.read(saved, x, len(y)):
            own.write(saved, block, matrices, tiles, y)
        add(y, bias)

    def backward(
        self, saved: Saved, dy: Array, x: Array | None, weight: Array | None, dx: Array | None
    ) -> Array | None:
        """Write dx, if there is one, and return dW, if there is an x: the tiles of dy serve both."""
        own, channels = self.behind, len(x) if x is not None else len(dx) if dx is not None else 0
        total = saved.array((own.elements, TAPS * len(dy), channels), dy.dtype)
        total.fill(0)
        if weight is not None:
            flipped = own.kernels(saved, weight.reshape(len(dy) * channels, -1)[:, ::-1])
            matrices = flipped.reshape(own.elements, 1, -1, channels).swapaxes(2, 3)
        for block, tiles in own.read(saved, dy, channels):
            if x is not None:
                add_outer(saved, tiles, own.spread(saved, block, x, tiles.shape[1]), total)
            if weight is not None and dx is not None:
                own.write(saved, block, matrices, tiles, dx)
        return None if x is None else own.taps_of(total)[:, ::-1]


class _Tiles:
    """Tiles of a convolution from one space, of two axes or more, to another."""

    def __init__(
        self, inputs: tuple[int, ...], outputs: tuple[int, ...], padding: tuple[int, ...]
    ) -> None:
        self.inputs, self.outputs, self.axes = inputs, outputs, len(inputs) - 1
        self.elements = INPUTS**self.axes
        rows, *along = outputs
        tiles = (rows, *(-(-extent // OUTPUTS) for extent in along))
        kernel, stride = (TAPS, *(INPUTS,) * self.axes), (1, *(OUTPUTS,) * self.axes)
        window = {"kernel": kernel, "stride": stride, "padding": padding}
        self.columns = Columns(inputs, tiles, window)
        self._outputs: dict[Any, list[Tap]] = {}

    def kernels(self, saved: Saved, taps_of: Array) -> Array:
        """Return G w of w, (kernels, taps), as (elements * rows of a kernel, kernels)."""
        product = saved.array((self.elements * TAPS, len(taps_of)), taps_of.dtype)
        transform = _of_kernels(self.axes, taps_of.dtype)
        return np.matmul(transform, taps_of.T, out=product)

    def taps_of(self, total: Array) -> Array:
        """Return the gradient of w, (kernels, taps), from that of G w."""
        transform = _of_kernels(self.axes, total.dtype).T
        product: Array = transform @ total.reshape(self.elements * TAPS, -1)
        return product.T

    def read(self, saved: Saved, x: Array, channels: int) -> Iterator[tuple[Block, Array]]:
        """Yield each block with B' x as matrices, (elements, rows, rows of a kernel * inputs, tiles).

        Where the products with `channels` of outputs are fast only if larger, tiles of all rows lie side by side.
        """
        own, batch = len(x), x.shape[-1]
        source = x.reshape(own, *self.inputs, batch).swapaxes(0, 1)
        plan = self.columns.plan(own, batch, x.itemsize, CACHE)
        largest = max((block.height * prod(block.shape) for block in plan), default=0)
        memory = saved.array((self.elements * own * largest,), x.dtype)
        for block in plan:
            shape = (self.elements, block.height, own, *block.shape)
            grid = memory[: prod(shape)].reshape(shape)
            self._transform(saved, block, source[block.reads], grid)
            rows, tiles = block.rows.stop - block.rows.start, prod(block.shape)
            matrices = self.elements, rows, TAPS * own, tiles
            shared = as_strided(grid, matrices, (*grid.strides[:3], x.itemsize))
            packed = matrices[2] * channels * FEW > UNPACKED
            few = tiles < (MANY if packed else NARROW)
            yield block, _side_by_side(saved, shared) if few else shared

    def _transform(self, saved: Saved, block: Block, rows: Array, grid: Array) -> None:
        """Write B' x of the rows that a block reads, a few at a time."""
        transform = _of_axes(B_T, self.axes, grid.dtype)
        step = max(1, PART // max(1, grid[:, 0].nbytes))
        for first in range(0, block.height, step):
            into = grid[:, first : first + step]
            before = min(max(0, block.before - first), into.shape[1])
            here = block._replace(before=before, height=into.shape[1])
            reads = slice(max(0, first - block.before), max(0, first + step - block.before))
            columns = saved.array(into.shape, grid.dtype)
            copy(rows[None, reads], here, np.moveaxis(columns, 0, 2)[None])
            np.matmul(transform, columns.reshape(len(grid), -1), out=into.reshape(len(grid), -1))

    def write(self, saved: Saved, block: Block, matrices: Array, tiles: Array, y: Array) -> None:
        """Write A' of the products of each element."""
        rows, stacked = self._rows(y, block), tiles.shape[1]
        each = rows.shape[1] // stacked
        step = max(1, PART // max(1, tiles[:, 0].size // tiles.shape[2] * len(y) * y.itemsize))
        for first in range(0, stacked, step):
            part = tiles[:, first : first + step]
            into = rows[:, first * each : (first + step) * each]
            sums = saved.array((*part.shape[:2], len(y), part.shape[3]), y.dtype)
            multiply(matrices, part, sums)
            found = _times(saved, _of_axes(A, self.axes, y.dtype).T, sums)
            found = found.reshape(len(found), part.shape[1], len(y), each, *block.shape)
            found = found.swapaxes(1, 2).reshape(len(found), *into.shape[:2], *block.shape)
            for tap in self._taps(block):
                into[:, *tap.there] = found[tap.number][:, *tap.here]

    def spread(self, saved: Saved, block: Block, y: Array, stacked: int) -> Array:
        """Return A y, (elements, stacked, outputs, tiles); in memory outputs come last, as products are faster so."""
        rows = self._rows(y, block).swapaxes(0, 1)
        grid = saved.array((OUTPUTS**self.axes, *rows.shape[:2], *block.shape), y.dtype)
        for tap in self._taps(block):
            column = grid[tap.number]
            column[:, *tap.here] = rows[:, *tap.there]
            for border in tap.border:
                column[:, *border] = 0
        apart = grid.reshape(*grid.shape[:3], prod(block.shape)).swapaxes(2, 3)
        turned = saved.array(apart.shape, y.dtype)
        turned[...] = apart
        spread = _times(saved, _of_axes(A, self.axes, y.dtype), turned)
        width = len(rows) // stacked * prod(block.shape)
        return spread.reshape(self.elements, stacked, width, len(y)).swapaxes(2, 3)

    def _rows(self, y: Array, block: Block) -> Array:
        """Return the rows of outputs of a block, (channels, rows, ...)."""
        return y.reshape(len(y), *self.outputs, y.shape[-1])[:, block.rows]

    def _taps(self, block: Block) -> list[Tap]:
        """Return which outputs of each tile are which, cached."""
        key = tuple((part.start, part.stop) for part in block.piece)
        if key not in self._outputs:
            four = dict.fromkeys(("kernel", "stride"), (OUTPUTS,) * self.axes)
            window = {**four, "padding": (0,) * self.axes}
            self._outputs[key] = taps(self.outputs[1:], block.piece, window)
        return self._outputs[key]


@cache
def _of_axes(matrix: tuple[tuple[float, ...], ...], axes: int, dtype: Any) -> Array:
    """Return a transform along several axes at once."""
    return reduce(np.kron, [np.array(matrix)] * axes).astype(dtype)


@cache
def _of_kernels(axes: int, dtype: Any) -> Array:
    """Return G for all rows of a kernel: (elements * rows, taps)."""
    by_row = np.kron(np.eye(TAPS), _of_axes(G, axes, dtype)).astype(dtype)
    width = by_row.shape[1]
    return by_row.reshape(TAPS, -1, width).swapaxes(0, 1).reshape(-1, width)


def _side_by_side(saved: Saved, matrices: Array) -> Array:
    """Return matrices, (elements, rows, height, width), as (elements, 1, height, rows * width)."""
    elements, rows, height, width = matrices.shape
    copied = saved.array((elements, height, rows, width), matrices.dtype)
    copied[...] = matrices.swapaxes(1, 2)
    return copied.reshape(elements, 1, height, rows * width)


def _times(saved: Saved, transform: Array, tiles: Array) -> Array:
    """Return the product of a transform and tiles, (elements, ...)."""
    product = saved.array((len(transform), *tiles.shape[1:]), tiles.dtype)
    np.matmul(transform, tiles.reshape(len(tiles), -1), out=product.reshape(len(product), -1))
    return product


def flop_ratio(output: tuple[int, ...]) -> float:
    """Return the multiplications over those of the definition; output: the extents of its space."""
    return prod(INPUTS * -(-extent // OUTPUTS) / (TAPS * extent) for extent in output[1:] if extent)


def traffic(layer: Layer) -> float:
    """Return the elements of tiles of inputs and outputs, when copied and when transformed."""
    rows, *along = layer.output_shape[1:]
    tiles = prod(INPUTS * -(-extent // OUTPUTS) for extent in along)
    return 2.0 * (layer.input_shape[0] + layer.output_shape[0]) * rows * tiles
