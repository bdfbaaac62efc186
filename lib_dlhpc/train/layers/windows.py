"""Windows that slide over space, one tap at a time, for convolutions and pools in any dimension.

A tap is one place of the kernel. Seen from it, output o reads input o * stride + tap - padding, so the
outputs that read inside the input are a block (`here`), and what they read is a block too (`there`),
each an index of an array (channels, *space, ...).
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any, NamedTuple

Block = tuple[slice, ...]


class Tap(NamedTuple):
    """Which outputs of a block read which inputs through one place of the kernel."""

    number: int
    here: Block  # outputs, counted from the block's first
    there: Block  # the inputs that they read
    border: tuple[Block, ...]  # outputs that read the padding


def taps(space: tuple[int, ...], block: Block, window: Mapping[str, Any]) -> list[Tap]:
    """Return the taps of `window` (kernel, stride, padding) for a block of outputs, last dimension fastest."""
    places = product(*(range(width) for width in window["kernel"]))
    return [Tap(number, *_tap(place, space, block, window)) for number, place in enumerate(places)]


def whole(output: tuple[int, ...]) -> Block:
    """Return all outputs as a block."""
    return tuple(slice(0, extent) for extent in output)


def blocks(output: tuple[int, ...], most: int) -> Iterator[Block]:
    """Cut the outputs into equal blocks, each in one piece of memory, of `most` positions at most."""
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


def _tap(
    place: tuple[int, ...], space: tuple[int, ...], block: Block, window: Mapping[str, Any]
) -> tuple[Block, Block, tuple[Block, ...]]:
    here, there = [], []
    for tap, extent, part, stride, padding in zip(
        place, space, block, window["stride"], window["padding"], strict=True
    ):
        shift = tap - padding
        first = max(part.start, -(shift // stride))
        last = max(first, min(part.stop, (extent - 1 - shift) // stride + 1))  # one past it
        start = first * stride + shift
        here.append(slice(first - part.start, last - part.start))
        there.append(slice(start, max(start, start + (last - first - 1) * stride + 1), stride))
    all_channels = slice(None)
    border = tuple((all_channels, *slab) for slab in _around(here, block))
    return (all_channels, *here), (all_channels, *there), border


def _around(inner: list[slice], block: Block) -> tuple[Block, ...]:
    """Return blocks that cover all of `block` but `inner`."""
    slabs = []
    for axis, (part, outer) in enumerate(zip(inner, block, strict=True)):
        for outside in (slice(0, part.start), slice(part.stop, outer.stop - outer.start)):
            if outside.stop > outside.start:
                slabs.append((*(slice(None),) * axis, outside))
    return tuple(slabs)
