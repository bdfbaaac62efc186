"""Windows that slide over space, one tap at a time, for convolutions and pools in any dimension.

A tap is one element of the kernel. For it, output o reads input o * stride + tap - padding, so the
outputs that read inside the input are a block (`here`), and what they read is a block too (`there`),
each an index of an array (channels, *space, ...).
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any, NamedTuple

Block = tuple[slice, ...]


class Tap(NamedTuple):
    """Which outputs of a block read which inputs through one element of the kernel."""

    number: int
    here: Block  # outputs, counted from the block's first
    there: Block  # the inputs that they read
    border: tuple[Block, ...]  # outputs that read the padding


def taps(space: tuple[int, ...], block: Block, window: Mapping[str, Any]) -> list[Tap]:
    """Return the taps of `window` (kernel, stride, padding) for a block of outputs, last dimension fastest."""
    # Slices are made once for each dimension: three dimensions have 27 taps, and many blocks.
    along = [
        [_slices(tap - padding, extent, part, stride) for tap in range(width)]
        for width, extent, part, stride, padding in zip(
            window["kernel"], space, block, window["stride"], window["padding"], strict=True
        )
    ]
    found, all_channels = [], slice(None)
    for number, place in enumerate(product(*along)):
        here, there = zip(*place, strict=True)
        border = tuple((all_channels, *slab) for slab in _around(here, block))
        found.append(Tap(number, (all_channels, *here), (all_channels, *there), border))
    return found


def whole(output: tuple[int, ...]) -> Block:
    """Return all outputs as a block."""
    return tuple(slice(0, extent) for extent in output)


def blocks(output: tuple[int, ...], most: int) -> Iterator[Block]:
    """Split the outputs into equal contiguous blocks of `most` positions at most."""
    rows, row = output[0], prod(output[1:])
    if row > most and len(output) > 1:
        for number in range(rows):
            for rest in blocks(output[1:], most):
                yield (slice(number, number + 1), *rest)
    else:
        pieces = -(-rows // max(1, most // max(1, row)))
        for piece in range(pieces):
            first, last = piece * rows // pieces, (piece + 1) * rows // pieces
            yield (slice(first, last), *whole(output[1:]))


def _slices(shift: int, extent: int, part: slice, stride: int) -> tuple[slice, slice]:
    """Return which outputs of a part read through a tap, and what, in one dimension."""
    first = max(part.start, -(shift // stride))
    last = max(first, min(part.stop, (extent - 1 - shift) // stride + 1))  # one past it
    start = first * stride + shift
    reads = slice(start, max(start, start + (last - first - 1) * stride + 1), stride)
    return slice(first - part.start, last - part.start), reads


def _around(inner: Block, block: Block) -> tuple[Block, ...]:
    """Return blocks that cover `block` without `inner`."""
    slabs = []
    for axis, (part, outer) in enumerate(zip(inner, block, strict=True)):
        for outside in (slice(0, part.start), slice(part.stop, outer.stop - outer.start)):
            if outside.stop > outside.start:
                slabs.append((*(slice(None),) * axis, outside))
    return tuple(slabs)
