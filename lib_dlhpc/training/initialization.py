"""Initial weights, the same under any partition, and initial running statistics."""

from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Shapes
from lib_dlhpc.layers.base.slices import start
from lib_dlhpc.spec.model import Model
from lib_dlhpc.training.weights import Store


def initial_weights(store: Store, model: Model, layers: list[Any], whole: Model, seed: int) -> None:
    """Initialize the weights of a part of `whole`; each layer has its own random stream."""
    numbers = {layer.name: number for number, layer in enumerate(whole.layers)}
    for index, noun in enumerate(model.layers):
        if not store.table.of[index]:
            continue
        weights = store.fill(index)
        rng = np.random.default_rng([seed, numbers.get(noun.name, index)])
        start(layers[index], noun, weights, rng)
        store.filled(index)


def statistics(layers: list[Any], dtype: Any) -> Array:
    """Return the running statistics of all layers as one flat array that the layers update."""
    wanted: list[tuple[Any, Shapes]] = [
        (layer, layer.statistics) for layer in layers if hasattr(layer, "statistics")
    ]
    flat = np.zeros(sum(prod(s) for _, shapes in wanted for s in shapes.values()), dtype)
    place = 0
    for layer, shapes in wanted:
        for name, shape in shapes.items():
            layer.running[name] = flat[place : place + prod(shape)].reshape(shape)
            place += prod(shape)
    return flat
