"""Convolutions of kernel 3 and stride 1 by minimal filtering: fewer multiplications than the definition has.

Along an axis, two outputs need 4 multiplications instead of 6: F(2, 3) of Winograd (1980, "Arithmetic complexity of
computations"). In 2-D that is 16 for 4 outputs instead of 36, in 3-D 64 for 8 instead of 216 (Lavin and Gray 2016,
"Fast algorithms for convolutional neural networks", section 4). Along each axis, with * elementwise,

    y = A' ((G w) * (B' x))    x: a tile of 4 inputs, 2 after the tile before it; y: its 2 outputs

    A' = 1  1  1  0     G =  1    0    0     B' = 1  0 -1  0
         0  1 -1 -1         1/2  1/2  1/2         0  1  1  0
                            1/2 -1/2  1/2         0 -1  1  0
                             0    0    1          0  1  0 -1

Summed over channels, each of the 4, 16 or 64 elements of a tile is a product of matrices. Backward, dx is the
convolution of dy with the flipped kernel, and the gradient of its G w is (B' dy) * (A x).
"""

from collections.abc import Iterator
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lib_dlhpc.layers.base.kind import Layer
from lib_dlhpc.layers.base.products import multiply
from lib_dlhpc.layers.base.saved import Array, Saved
from lib_dlhpc.layers.base.windows import Block, Tap, blocks, taps

# Bytes of a block of tiles, of inputs and outputs together: more than L2 holds, as calls cost more than its misses.
CACHE = 3 * 1024 * 1024
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


class _Block(NamedTuple):
    shape: tuple[int, ...]  # of its tiles
    reads: Block  # the inputs that its tiles cover
    inside: Block  # where they are among these tiles, which reach into the padding
    writes: list[Tap]  # the outputs, first and second of each pair


class Filter:
    """A convolution from one space to another, with this many zeros around its inputs."""

    def __init__(
        self, inputs: tuple[int, ...], outputs: tuple[int, ...], padding: tuple[int, ...]
    ) -> None:
        self.inputs, self.outputs, self.padding = inputs, outputs, padding
        self._plans: dict[tuple[int, int], list[_Block]] = {}

    def tiles(
        self, saved: Saved, x: Array, channels: int
    ) -> Iterator[tuple[Array, Array, list[Tap]]]:
        """Yield B' x of each block of tiles, room for A y of `channels`, and the outputs y.

        (elements of a tile, inputs, tiles) and (4, 4, ..., channels, *tiles, batch).
        """
        axes, batch = len(self.inputs), x.shape[-1]
        tile = 4**axes * (len(x) + channels) * batch
        plan = self._plan(batch, CACHE // max(1, tile * x.itemsize))
        memory = saved.array((tile * max(prod(b.shape) for b in plan),), x.dtype)
        around = [(len(x), *(2 * extent + 2 for extent in b.shape), batch) for b in plan]
        padded = saved.array((max(map(prod, around)),), x.dtype)
        for block, covered in zip(plan, around, strict=True):
            source = padded[: prod(covered)].reshape(covered)
            source.fill(0)
            source[block.inside] = x[block.reads]
            grid = _part(memory, (len(x), *block.shape, batch))
            channel, *steps, sample = source.strides
            strides = (*steps, channel, *(2 * step for step in steps), sample)
            grid[...] = as_strided(source, grid.shape, strides, writeable=False)
            _inputs(grid.reshape(*grid.shape[:axes], -1))
            room = _part(memory[grid.size :], (channels, *block.shape, batch))
            yield grid.reshape(4**axes, len(x), -1), room, block.writes

    def _plan(self, batch: int, most: int) -> list[_Block]:
        """Return blocks of `most` tiles at most, cached."""
        if (batch, most) not in self._plans:
            plan = self._plans[batch, most] = []
            two, none = (2,) * len(self.inputs), (0,) * len(self.inputs)
            pairs = {"kernel": two, "stride": two, "padding": none}
            for block in blocks(tuple(-(-extent // 2) for extent in self.outputs), most):
                reads, inside = [slice(None)], [slice(None)]
                for part, extent, pad in zip(block, self.inputs, self.padding, strict=True):
                    first, last = 2 * part.start - pad, 2 * part.stop + 2 - pad
                    reads.append(slice(max(0, first), min(extent, last)))
                    inside.append(slice(reads[-1].start - first, reads[-1].stop - first))
                shape = tuple(part.stop - part.start for part in block)
                writes = taps(self.outputs, block, pairs)
                plan.append(_Block(shape, tuple(reads), tuple(inside), writes))
        return self._plans[batch, most]


def flop_ratio(axes: int) -> float:
    """Return the multiplications over those of the definition."""
    return (4 / 6) ** axes


def traffic(layer: Layer) -> float:
    """Return the elements of tiles of inputs and outputs, once when copied and once more for each axis."""
    axes = len(layer.output_shape) - 1
    channels = layer.input_shape[0] + layer.output_shape[0]
    return float((1 + axes) * 2**axes * channels * prod(layer.output_shape[1:]))


class Minimal:
    """A convolution from one space to another, with this many zeros around its inputs."""

    adds = False  # dx is written

    def __init__(
        self, space: tuple[int, ...], output: tuple[int, ...], padding: tuple[int, ...]
    ) -> None:
        self.ahead = Filter(space, output, padding)
        self.behind = Filter(output, space, tuple(2 - pad for pad in padding))

    def forward(self, saved: Saved, x: Array, weight: Array, bias: Array | None, y: Array) -> None:
        """Write y = W * x + b."""
        matrices, ones = _kernels(saved, weight), (1,) * (y.ndim - 2)
        for tiles, sums, writes in self.ahead.tiles(saved, x, len(y)):
            _multiply(matrices, tiles, sums)
            if bias is not None:  # A' adds this element to both outputs
                sums[ones] += bias.reshape(-1, *ones, 1)
            _write(y, sums, writes)

    def backward(
        self, saved: Saved, dy: Array, x: Array | None, weight: Array | None, dx: Array | None
    ) -> Array | None:
        """Write dx, if there is one, and return dW, if there is an x: the tiles of dy serve both."""
        axes, total = dy.ndim - 2, None
        channels = len(x) if x is not None else len(dx) if dx is not None else 0
        if weight is not None:
            matrices = _kernels(saved, weight, flipped=True).swapaxes(1, 2)
        if x is not None:
            total, part = (saved.array((4**axes, len(dy), channels), dy.dtype) for _ in range(2))
            total.fill(0)
        for tiles, room, places in self.behind.tiles(saved, dy, channels):
            if x is not None:
                _spread(x, room, places)
                flat = room.reshape(4**axes, channels, -1)
                total += np.matmul(tiles, flat.swapaxes(1, 2), out=part)
            if weight is not None and dx is not None:
                _multiply(matrices, tiles, room)
                _write(dx, room, places)
        if total is None:
            return None
        taps_of = _axes(axes, dy.dtype).T @ total.reshape(4**axes, -1)
        return taps_of[::-1].T


def _kernels(saved: Saved, weight: Array, flipped: bool = False) -> Array:
    """Return G w of shape (elements of a tile, outputs, inputs)."""
    outputs, inputs, *kernel = weight.shape
    taps_of = weight.reshape(outputs * inputs, -1)[:, :: -1 if flipped else 1]
    matrices = saved.array((4 ** len(kernel), outputs * inputs), weight.dtype)
    np.matmul(_axes(len(kernel), weight.dtype), taps_of.T, out=matrices)
    return matrices.reshape(-1, outputs, inputs)


def _multiply(matrices: Array, tiles: Array, sums: Array) -> None:
    """Write the product of each element of the tiles."""
    flat = sums.reshape(*matrices.shape[:2], -1)
    multiply(matrices[:, None], tiles[:, None], flat[:, None])


def _axes(many: int, dtype: np.dtype[Any]) -> Array:
    """Return G of several axes at once: (elements of a tile, elements of a kernel)."""
    return reduce(np.kron, [G] * many).astype(dtype)


def _inputs(tiles: Array) -> None:
    """Replace x by B' x, along each axis but the last."""
    for axis in range(tiles.ndim - 1):
        a, b, c, d = _elements(tiles, axis)
        a -= c
        np.subtract(b, d, out=d)
        c -= b
        b *= 2
        b += c  # the sum of the old ones


def _spread(y: Array, room: Array, places: list[Tap]) -> None:
    """Write A y."""
    axes = y.ndim - 2
    for pair, tap in zip(np.ndindex((2,) * axes), places, strict=True):
        column = room[pair]
        column[tap.here] = y[tap.there]
        for border in tap.border:
            column[border] = 0
    for axis in range(axes):
        filled = (slice(4),) * (axis + 1) + (slice(2),) * (axes - 1 - axis)
        a, b, c, d = _elements(room[filled], axis)
        np.negative(b, out=d)
        np.subtract(a, b, out=c)
        b += a


def _write(y: Array, sums: Array, places: list[Tap]) -> None:
    """Write A' of sums, which are overwritten."""
    axes = y.ndim - 2
    for axis in range(axes):
        a, b, c, d = _elements(sums, axis)
        a += b
        a += c
        b -= c
        b -= d
        sums = sums[(slice(2),) * (axis + 1)]
    for pair, tap in zip(np.ndindex((2,) * axes), places, strict=True):
        y[tap.there] = sums[pair][tap.here]


def _elements(tiles: Array, axis: int) -> list[Array]:
    """Return the four elements of all tiles along an axis."""
    return [tiles[(slice(None),) * axis + (number,)] for number in range(4)]


def _part(memory: Array, shape: tuple[int, ...]) -> Array:
    """Return the first part of memory, as (4, 4, ..., *shape)."""
    whole = (4,) * (len(shape) - 2) + shape
    return memory[: prod(whole)].reshape(whole)
