"""Layer times by measured rates: launch + FLOP / rate + bytes / bandwidth, forward and backward.

Bytes are those of the trainer's layers: `numpy_traffic` of a kind is what it moves beside input and output.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.layer_rate import LayerRate
from lib_dlhpc.spec.model import Model


def replaced(
    model: Model, rates: Mapping[str, LayerRate], batch: Any, size: int, forward: Any, backward: Any
) -> tuple[Any, Any]:
    """Return forward and backward times in s, (..., layers), replaced for kinds with a measured rate.

    batch: with a last axis for the layers; size: bytes of an element.
    """
    kinds = [layer.traits.rate_key(layer) for layer in model.layers]
    known = np.array([kind in rates for kind in kinds])
    each = [rates.get(kind, LayerRate()) for kind in kinds]
    ahead, back = seconds(model, each, batch, size)
    return np.where(known, ahead, forward), np.where(known, back, backward)


def seconds(model: Model, each: list[LayerRate], batch: Any, size: int) -> tuple[Any, Any]:
    """Return the forward and backward times of layers in s, one rate for each."""
    work, (elements, parameters) = batch * model.layer_forward_flop, moved(model)
    data = (batch * elements + parameters) * size
    ahead = _column(each, "launch") + work / _column(each, "rate")
    ahead = ahead + data / _column(each, "bandwidth")
    back = work / _column(each, "backward_rate") + data / _column(each, "backward_bandwidth")
    return ahead, _column(each, "backward_launch") + products(model) * back


@lru_cache(maxsize=256)
def products(model: Model) -> NDArray[np.float64]:
    """Return the gradient products of each layer in backward: no input gradient for the sample."""
    return np.array([1.0 if layer.inputs == ("input",) else 2.0 for layer in model.layers])


@lru_cache(maxsize=256)
def moved(model: Model) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return elements each layer moves a sample, and parameters that it reads once a batch."""
    elements = model.layer_input_elements + model.layer_output_elements
    elements += np.array([layer.traits.numpy_traffic(layer) for layer in model.layers])
    lookup = [layer.traits.lookup for layer in model.layers]
    return elements, np.where(lookup, 0.0, model.layer_parameters)


def _column(each: list[LayerRate], name: str) -> Any:
    """Return one parameter of each layer's rate, (..., layers)."""
    values = [getattr(rate, name) for rate in each]
    return np.stack(np.broadcast_arrays(*values), axis=-1) if values else np.zeros(0)
