"""Layer times by measured rates: launch + FLOP / rate + bytes / bandwidth, forward and backward.

FLOP and bytes are those of the trainer's layers: `numpy_flop` of a kind is what it computes, `numpy_traffic` what it
moves beside input and output. A pass also copies its samples before the layers, and computes the loss and its gradient
after them.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.layer_rate import LayerRate
from lib_dlhpc.spec.model import Layer, Model

SAMPLES, LOSS = "samples", "loss"  # of a pass outside the layers, with rates of their own


def rated(
    model: Model, rates: Mapping[str, LayerRate], batch: Any, size: int
) -> tuple[NDArray[np.bool_], tuple[tuple[Any, Any], ...]]:
    """Return which layers have a measured rate, and the forward and backward s of each layer, (..., layers).

    Three pairs of them: arithmetic, memory, launch. batch: with a last axis for the layers; size: bytes of an element.
    No rate is of a narrow format.
    """
    known = np.array([is_rated(layer, rates) for layer in model.layers])
    kinds = [layer.traits.rate_key(layer) for layer in model.layers]
    layer_rates = [
        rates[kind] if is_known else LayerRate()
        for kind, is_known in zip(kinds, known, strict=True)
    ]
    return known, activities(model, layer_rates, batch, size)


def is_rated(layer: Layer, rates: Mapping[str, LayerRate]) -> bool:
    """Return whether a layer has a measured rate."""
    return not layer.narrow and layer.traits.rate_key(layer) in rates


def activities(
    model: Model, rates: list[LayerRate], batch: Any, size: int
) -> tuple[tuple[Any, Any], ...]:
    """Return forward and backward s of arithmetic, memory and launch of layers, one rate for each."""
    work, (elements, parameters) = batch * computed(model), moved(model)
    data, twice = (batch * elements + parameters) * size, products(model)
    return (
        (work / _column(rates, "rate"), twice * (work / _column(rates, "backward_rate"))),
        (data / _column(rates, "bandwidth"), twice * (data / _column(rates, "backward_bandwidth"))),
        (_column(rates, "launch"), started(model) * _column(rates, "backward_launch")),
    )


def seconds(model: Model, rates: list[LayerRate], batch: Any, size: int) -> tuple[Any, Any]:
    """Return the forward and backward times of layers in s, one rate for each."""
    ahead, back = zip(*activities(model, rates, batch, size), strict=True)
    return sum(ahead), sum(back)


def outside(model: Model, rates: Mapping[str, LayerRate], batch: Any, size: int) -> Any:
    """Return the s of a forward pass outside the layers, at the layers next to it, (..., layers).

    Arguments as of `rated`. Copying the samples is charged to the first layer that reads them, the loss and its
    gradient to the last layer of the network; where they have no rate, they cost nothing.
    """
    number, overhead = np.arange(len(model.layers)), np.zeros(len(model.layers))
    last = [len(number) - 1] if model.scored else []
    for name, layers in ((SAMPLES, model.readers.get("input", [])), (LOSS, last)):
        if (rate := rates.get(name)) and layers:
            moved = batch * outside_elements(model)[name] * size
            overhead = overhead + (number == layers[0]) * (rate.launch + moved / rate.bandwidth)
    return overhead


def outside_elements(model: Model) -> dict[str, int]:
    """Return the elements of a sample that are copied, and those of which the loss is computed."""
    return {SAMPLES: prod(model.input_shape), LOSS: prod(model.output_shape)}


@lru_cache(maxsize=256)
def products(model: Model) -> NDArray[np.float64]:
    """Return the gradient products of each layer in backward: no input gradient for the sample."""
    samples = np.array([layer.inputs == ("input",) for layer in model.layers])
    return np.maximum(model.layer_gradients - samples, 0.0)


@lru_cache(maxsize=256)
def started(model: Model) -> NDArray[np.float64]:
    """Return which part of a layer's gradient products is started in backward; 1 of those that form none."""
    return np.divide(
        products(model),
        model.layer_gradients,
        out=np.ones(len(model.layers)),
        where=model.layer_gradients > 0,
    )


@lru_cache(maxsize=256)
def computed(model: Model) -> NDArray[np.float64]:
    """Return the FLOP of each layer forward, of a sample."""
    return np.array([layer.traits.numpy_flop(layer) for layer in model.layers], np.float64)


@lru_cache(maxsize=256)
def moved(model: Model) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return elements each layer moves a sample, and parameters that it reads once a batch."""
    elements = model.layer_input_elements + model.layer_output_elements
    elements += np.array([layer.traits.numpy_traffic(layer) for layer in model.layers])
    lookup = [layer.traits.lookup for layer in model.layers]
    return elements, np.where(lookup, 0.0, model.layer_parameters)


def _column(rates: list[LayerRate], name: str) -> Any:
    """Return one parameter of each layer's rate, (..., layers)."""
    values = [getattr(rate, name) for rate in rates]
    return np.stack(np.broadcast_arrays(*values), axis=-1) if values else np.zeros(0)
