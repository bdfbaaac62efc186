"""Columns: what each output of a convolution reads, as a column of a matrix, so that it is a product of matrices.

A row is all that lies at one index of the first axis of space. Each row of inputs is copied once for each tap of the
other axes (im2col, Chellapilla et al. 2006, "High performance convolutional neural networks for document
processing"). Rows follow each other in memory, so the columns of a row of outputs are those of the input rows that it
reads, without a copy for each tap of the first axis:

    inputs, row 0   | channels x taps    matrix of output row 0
           row 1    |                  | and of row 1
           row 2    |                  |
           row 3                       |

A kernel of 3 x 3 copies its input 3 times instead of 9, one of 3 x 3 x 3 copies it 9 times instead of 27.
"""

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from lib_dlhpc.layers.base.saved import Array, Saved
from lib_dlhpc.layers.base.windows import Tap, blocks, taps

CACHE = 2 * 1024 * 1024  # bytes of columns in a block
# columns of a row in a block, at least: products of fewer are slower than rows read again
WIDE = 256
# padding elements between two rows of a matrix: power-of-2 strides cause cache conflicts
APART = 16


class Block(NamedTuple):
    """Outputs whose columns are in memory at once."""

    rows: slice  # of the outputs
    piece: tuple[slice, ...]  # of the outputs in a row, along each axis
    positions: slice  # these, samples included
    shape: tuple[int, ...]  # of these positions, samples included
    reads: slice  # the rows of inputs that it reads
    before: int  # rows of padding before these
    height: int  # rows of inputs that it covers, padding included
    taps: list[Tap]  # in a row
    every: list[Tap]  # of the whole kernel, for a block of the outputs

    def of(self, outputs: Array) -> Array:
        """Return its part of outputs (groups, channels, rows, positions) as (groups, rows, channels, positions)."""
        return outputs[:, :, self.rows, self.positions].swapaxes(1, 2)


class Columns:
    """The columns of a convolution from one space to another; of one axis: as rows of one row.

    window: kernel, stride and padding, one number for each axis. groups: of channels.
    """

    def __init__(
        self,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        window: dict[str, tuple[int, ...]],
        groups: int = 1,
    ) -> None:
        if len(inputs) == 1:
            inputs, outputs = (1, *inputs), (1, *outputs)
            single = {"kernel": (1,), "stride": (1,), "padding": (0,)}
            window = {name: single[name] + sizes for name, sizes in window.items()}
        self.inputs, self.outputs, self.window, self.groups = inputs, outputs, window, groups
        self.height, self.step, self.pad = (sizes[0] for sizes in _in_order(window))
        self.width = prod(window["kernel"][1:])  # taps in a row
        self._plans: dict[Any, list[Block]] = {}

    def by_rows(self, outputs: Array) -> Array:
        """Return a view of outputs as (groups, channels of a group, rows, positions)."""
        channels, batch = len(outputs) // self.groups, outputs.shape[-1]
        positions = prod(self.outputs[1:]) * batch
        return outputs.reshape(self.groups, channels, self.outputs[0], positions)

    def matrix_height(self, channels: int) -> int:
        """Return the rows of the columns of inputs with these channels."""
        return self.height * self.width * (channels // self.groups)

    def matrix(self, weight: Array) -> Array:
        """Return weights (outputs, inputs of a group, *kernel) as (groups, outputs, rows of the columns)."""
        outputs, inputs = len(weight) // self.groups, weight.shape[1]
        apart = weight.reshape(self.groups, outputs, inputs, self.height, self.width)
        return apart.swapaxes(2, 3).reshape(self.groups, outputs, -1)

    def weight(self, matrix: Array) -> Array:
        """Return (groups, rows of the columns, outputs) as weights (outputs, inputs of a group, all taps)."""
        groups, _, outputs = matrix.shape
        apart = matrix.reshape(groups, self.height, -1, self.width, outputs)
        return apart.transpose(0, 4, 2, 1, 3).reshape(
            groups * outputs, -1, self.height * self.width
        )

    def read(self, saved: Saved, x: Array) -> Iterator[tuple[Block, Array]]:
        """Yield each block with its columns of x, (groups, rows, channels * taps, positions)."""
        batch, channels = x.shape[-1], len(x) // self.groups
        plan = self.plan(len(x), batch, x.itemsize, CACHE)
        long = max((prod(block.shape) for block in plan), default=0) + APART
        tall = max((block.height for block in plan), default=0)
        source = x.reshape(self.groups, channels, *self.inputs, batch)
        room = (self.groups, tall, channels, self.width, long)
        # All convolutions request the same size, so they share the memory.
        memory = saved.array((max(prod(room), CACHE // x.itemsize),), x.dtype)
        memory = memory[: prod(room)].reshape(room)
        group, row, _, line, item = memory.strides
        for block in plan:
            positions = prod(block.shape)
            grid = memory[..., :positions].reshape(*memory.shape[:4], *block.shape)
            copy(source[:, :, block.reads].swapaxes(1, 2), block, grid)
            rows = block.rows.stop - block.rows.start
            matrices = (self.groups, rows, self.matrix_height(len(x)), positions)
            yield block, as_strided(memory, matrices, (group, self.step * row, line, item))

    def add_back(self, saved: Saved, turned: Array, dy: Array, dx: Array) -> None:
        """Add to dx the columns that `turned` makes of dy: (groups, rows of the columns, outputs)."""
        batch, channels = dy.shape[-1], len(dx) // self.groups
        plan, outputs = self.plan(len(dx), batch, dx.itemsize, CACHE), self.by_rows(dy)
        into = dx.reshape(self.groups, channels, *self.inputs, batch)
        for block in plan:
            part = block.of(outputs)
            columns = saved.array((*part.shape[:2], turned.shape[1], part.shape[3]), dy.dtype)
            np.matmul(turned[:, None], part, out=columns)
            apart = (*part.shape[:2], self.height, channels, self.width, *block.shape)
            grid = columns.reshape(apart)
            for tap in block.every:
                row, along = divmod(tap.number, self.width)
                column = grid[:, :, row, :, along].swapaxes(1, 2)
                into[:, *tap.there] += column[:, *tap.here]

    def plan(self, channels: int, batch: int, itemsize: int, cache: int) -> list[Block]:
        """Return blocks, cached: of inputs with these channels, each has columns of about `cache` bytes at most."""
        key = channels, batch, itemsize, cache
        if key not in self._plans:
            column, batch = channels * self.width * itemsize, max(1, batch)
            # A rank may have no rows.
            fit = cache // max(1, column * batch * (self.inputs[0] + 2 * self.pad))
            own = self._plans[key] = []
            start, rest = 0, {name: sizes[1:] for name, sizes in self.window.items()}
            for piece in blocks(self.outputs[1:], max(fit, -(-WIDE // batch))):
                extents = tuple(part.stop - part.start for part in piece)
                positions = slice(start, start + prod(extents) * key[1])
                start, within = positions.stop, taps(self.inputs[1:], piece, rest)
                high = cache // (column * (prod(extents) * batch + APART))
                high = (high - self.height) // self.step + 1
                for (rows,) in blocks(self.outputs[:1], max(1, high)):
                    first = rows.start * self.step - self.pad
                    last = (rows.stop - 1) * self.step - self.pad + self.height
                    reads = slice(max(0, first), max(0, min(self.inputs[0], last)))
                    every = taps(self.inputs, (rows, *piece), self.window)
                    shape, before = (*extents, key[1]), reads.start - first
                    size = last - first
                    own.append(
                        Block(rows, piece, positions, shape, reads, before, size, within, every)
                    )
        return self._plans[key]


def _in_order(window: dict[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [window[name] for name in ("kernel", "stride", "padding")]


def copy(rows: Array, block: Block, grid: Array) -> None:
    """Write what each tap reads of rows (groups, rows, channels, ...), and zeros where it reads the padding."""
    last = block.before + rows.shape[1]
    grid[:, : block.before] = 0
    grid[:, last : block.height] = 0
    inner = grid[:, block.before : last]
    for tap in block.taps:
        column = inner[:, :, :, tap.number]
        column[:, :, *tap.here] = rows[:, :, *tap.there]
        for border in tap.border:
            column[:, :, *border] = 0
