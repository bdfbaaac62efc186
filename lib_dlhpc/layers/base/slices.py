"""Slices: a rank's part of a partitioned tensor, of its initial weights and of a random mask.

Any partition must start from the same weights and drop the same elements, so random numbers are drawn for the
full tensor, then sliced. A part is an axis and ranges along it, ((start, stop), ...), concatenated.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from lib_dlhpc.layers.base.kind import Layer, Shape
from lib_dlhpc.layers.base.saved import Array, Rng, Shapes, Tensors

Part: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]


def part_of(whole: Array, part: Part | None) -> Array:
    """Return the part of an array in the ranges; all of it if `part` is None."""
    if part is None:
        return whole
    axis, ranges = part
    cuts = [whole[_along(axis, start, stop)] for start, stop in ranges]
    return cuts[0] if len(cuts) == 1 else np.concatenate(cuts, axis=axis)


def put_part(whole: Array, part: Part | None, values: Array) -> None:
    """Put values into the part of an array that part_of returns."""
    if part is None:
        whole[...] = values
        return
    axis, ranges = part
    first = 0
    for start, stop in ranges:
        whole[_along(axis, start, stop)] = values[_along(axis, first, first + stop - start)]
        first += stop - start


def parts_of(layer: Layer) -> Mapping[str, Part]:
    """Return the part of each tensor that is partitioned, running statistics like their scale."""
    parts = dict(layer.attributes.get("part", {}))
    if layer.traits.batch_statistics and "scale" in parts:
        parts |= {"mean": parts["scale"], "variance": parts["scale"]}
    return parts


def tokens_of(layer: Layer) -> Part | None:
    """Return the part of a sequence that context-parallel ranks give this one; None for all."""
    tokens = layer.attributes.get("tokens")
    return None if tokens is None else (0, tokens)


def whole_shape(layer: Layer) -> Shape:
    """Return the shape of the output of the full layer, for all tokens."""
    shape: Shape = layer.attributes.get("whole", layer).output_shape
    return (layer.attributes.get("sequence", shape[0]), *shape[1:])


def own_shapes(layer: Layer, shapes: Shapes) -> Shapes:
    """Return the shapes of the tensors of this rank, without those of which it has no range."""
    parts = layer.attributes.get("part", {})
    return {name: shape for name, shape in shapes.items() if name not in parts or parts[name][1]}


def start(layer: Any, noun: Layer, weights: Tensors, rng: Rng) -> None:
    """Initialize the weights of a rank's layer: its part of those of the full layer.

    layer: built from `noun`, which describes the full layer.
    """
    parts = parts_of(noun)
    if not hasattr(layer, "start"):
        return
    whole = noun.attributes.get("whole")
    if not parts or whole is None or hasattr(layer, "statistics"):  # no random numbers in norms
        layer.start(weights, rng)
        return
    entire = whole.traits(whole)
    tensors = {name: np.zeros(shape, _dtype(weights)) for name, shape in entire.shapes.items()}
    entire.start(tensors, rng)
    for name in tensors.keys() & weights.keys():  # a tied layer sees another layer's tensor
        weights[name][...] = part_of(tensors[name], parts.get(name))


def _dtype(weights: Tensors) -> Any:
    return next(iter(weights.values())).dtype if weights else np.float64


def _along(axis: int, start: int, stop: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(start, stop))
