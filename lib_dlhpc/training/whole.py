"""The whole network, of which a rank has parts: its first weights cut out, its tensors put together again.

What is written to a file knows nothing of ranks: whole tensors in the order of the unsplit network. So
any layout can take up what any other has saved.
"""

from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.training.layers import KINDS
from lib_dlhpc.training.layers.kept import Array, Shapes
from lib_dlhpc.training.layers.slices import Part, parts_of, put_part


class Place(NamedTuple):
    """Where a tensor lies in a flat array."""

    start: int
    shape: tuple[int, ...]


class Piece(NamedTuple):
    """A rank's part of one tensor; all of it where `part` is None."""

    name: str  # "conv1.weight"
    part: Part | None
    values: Array


def weight_places(model: Model) -> dict[str, Place]:
    """Return where each tensor of weights lies in a network's array of them."""
    return _places(
        (layer, getattr(KINDS[layer.kind](layer), "shapes", {})) for layer in model.layers
    )


def statistic_places(model: Model) -> dict[str, Place]:
    """Return where each running statistic lies in a network's array of them."""
    return _places(
        (layer, getattr(KINDS[layer.kind](layer), "statistics", {})) for layer in model.layers
    )


def parts_by_name(layers: Iterable[Layer]) -> dict[str, Part]:
    """Return the parts of all tensors of a rank that are split."""
    return {
        f"{layer.name}.{name}": part for layer in layers for name, part in parts_of(layer).items()
    }


def put_together(places: dict[str, Place], pieces: Iterable[Piece], dtype: Any) -> Array:
    """Return the flat array of whole tensors that the pieces of all ranks make."""
    flat = np.zeros(size_of(places), dtype)
    for piece in pieces:
        put_part(view(flat, places[piece.name]), piece.part, piece.values)
    return flat


def _places(found: Iterable[tuple[Layer, Shapes]]) -> dict[str, Place]:
    places, start = {}, 0
    for layer, shapes in found:
        for name, shape in shapes.items():
            places[f"{layer.name}.{name}"] = Place(start, shape)
            start += prod(shape)
    return places


def size_of(places: dict[str, Place]) -> int:
    """Return how many elements the flat array has."""
    return sum(prod(place.shape) for place in places.values())


def view(flat: Array, place: Place) -> Array:
    """Return one tensor of the flat array."""
    return flat[place.start : place.start + prod(place.shape)].reshape(place.shape)
