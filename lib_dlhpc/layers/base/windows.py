"""Windows that slide over space, one tap at a time, for convolutions and pools in any dimension.

A tap is one element of the kernel. For it, output o reads input o * stride + tap - padding, so the
outputs that read inside the input are a block (`here`), and what they read is a block too (`there`),
each an index of an array (channels, *space, ...).
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any, NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site

Block = tuple[slice, ...]
Size = int | tuple[int, ...]


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


class Pool(Kind):
    """A pool of windows that slide over images or volumes."""

    tensor, spatial = "features", "windows"
    dimensions = (3,)

    @staticmethod
    def describe(site: Site, kernel: Size, stride: Size | None = None, padding: Size = 0) -> Counts:
        """Return the counts; the default stride is the kernel size."""
        channels, *space = site.at_least(2)
        kernel, stride, padding = per_dimension(
            site.name, space, kernel, kernel if stride is None else stride, padding
        )
        output = (channels, *slide(site.name, space, kernel, stride, padding))
        return Counts(output, attributes={"kernel": kernel, "stride": stride, "padding": padding})

    def __init__(self, layer: Layer) -> None:
        self.output = layer.output_shape[1:]
        self.taps = taps(layer.input_shape[1:], whole(self.output), layer.attributes)


def per_dimension(
    name: str, space: list[int], *sizes: Size
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return kernel, stride and padding with one entry for each dimension of space."""
    full = [(size,) * len(space) if isinstance(size, int) else tuple(size) for size in sizes]
    for size in full:
        if len(size) != len(space):
            raise SpecError(
                f"{name}: {list(size)} must have {len(space)} entries, one per dimension."
            )
    return full[0], full[1], full[2]


def slide(
    name: str,
    space: list[int],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
) -> tuple[int, ...]:
    """Return the output extent of a sliding window along each dimension."""
    for extent, width, pad in zip(space, kernel, padding, strict=True):
        if width > extent + 2 * pad:
            raise SpecError(
                f"{name}: kernel = {width} is larger than its input, {extent} with padding {pad}; "
                f"legal: 1 to {extent + 2 * pad}."
            )
        if 2 * pad > width:
            raise SpecError(
                f"{name}: padding = {pad} is more than half of kernel = {width}; "
                f"legal: 0 to {width // 2}."
            )
    return tuple(
        (extent + 2 * pad - width) // step + 1
        for extent, width, step, pad in zip(space, kernel, stride, padding, strict=True)
    )
