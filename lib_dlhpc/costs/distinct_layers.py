"""The layers of a network that differ from one another: what is known of these is known of all.

A deep network has hundreds of layers of a few kinds, and a stage of it the same ones. Rules that read of a layer what
its likeness has, and how many elements it reads, are applied once for each kind.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.spec.model import Model


class DistinctLayers(NamedTuple):
    """The first layer of each kind, in order, as a network; and which of them each layer is like."""

    few: Model
    place: NDArray[np.intp]


@lru_cache(maxsize=256)
def distinct_layers(model: Model) -> DistinctLayers:
    """Return the layers of a network that differ; networks with the same kinds of layers share the result's `few`."""
    elements = model.layer_input_elements.tolist()
    known = dict[tuple[int, float], int]()
    keys = zip([layer.likeness for layer in model.layers], elements, strict=True)
    place = np.array([known.setdefault(kind, len(known)) for kind in keys], np.intp)
    return DistinctLayers(_few(Keyed((model, place), *known)), place)


@lru_cache(maxsize=256)
def _few(key: Keyed[tuple[Model, NDArray[np.intp]]]) -> Model:
    model, place = key.value
    first = np.unique(place, return_index=True)[1]
    elements = model.layer_input_elements[first]
    layers = tuple(model.layers[index] for index in first)
    few = Model(model.name, layers, model.input_shape, options={"read": tuple(elements.tolist())})
    elements.setflags(write=False)
    vars(few)["layer_input_elements"] = elements  # their sources are not among the layers
    return few
