"""Full tensors of a partitioned network, and where a rank's parts lie in them.

Files are independent of the ranks: full tensors in the order of the unpartitioned network. So any layout can
restore what any other has saved.
"""

from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Shapes
from lib_dlhpc.layers.base.slices import Part, parts_of, put_part
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.training.messages import built


class Place(NamedTuple):
    """Position of a tensor in a flat array."""

    start: int
    shape: tuple[int, ...]


class Piece(NamedTuple):
    """A rank's part of one tensor; all of it where `part` is None."""

    name: str  # "conv1.weight"
    part: Part | None
    values: Array


def weight_places(model: Model) -> dict[str, Place]:
    """Return the position of each weight tensor in a network's flat array."""
    return _places((layer, getattr(built(layer), "shapes", {})) for layer in model.layers)


def statistic_places(model: Model) -> dict[str, Place]:
    """Return the position of each running statistic in a network's flat array."""
    return _places((layer, getattr(built(layer), "statistics", {})) for layer in model.layers)


def parts_by_name(layers: Iterable[Layer]) -> dict[str, Part]:
    """Return the parts of a rank's partitioned tensors."""
    return {
        f"{layer.name}.{name}": part for layer in layers for name, part in parts_of(layer).items()
    }


def expert_tensors(layers: Iterable[Layer]) -> frozenset[str]:
    """Return the names of the tensors of experts that replicas share out."""
    return frozenset(
        f"{layer.name}.{name}"
        for layer in layers
        if "own" in layer.attributes
        for name in layer.traits.expert_parameters
    )


def assemble(places: dict[str, Place], pieces: Iterable[Piece], dtype: Any) -> Array:
    """Return the flat array of full tensors assembled from the pieces of all ranks."""
    flat = np.zeros(size_of(places), dtype)
    for piece in pieces:
        put_part(view(flat, places[piece.name]), piece.part, piece.values)
    return flat


def _places(layers: Iterable[tuple[Layer, Shapes]]) -> dict[str, Place]:
    places, start = {}, 0
    for layer, shapes in layers:
        for name, shape in shapes.items():
            places[f"{layer.name}.{name}"] = Place(start, shape)
            start += prod(shape)
    return places


def size_of(places: dict[str, Place]) -> int:
    """Return the number of elements of the flat array."""
    return sum(prod(place.shape) for place in places.values())


def view(flat: Array, place: Place) -> Array:
    """Return one tensor of the flat array."""
    return flat[place.start : place.start + prod(place.shape)].reshape(place.shape)
