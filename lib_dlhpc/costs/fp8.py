"""What fp8 changes of linear layers: products read operands of one byte, which casts have written before them.

    product = max( (w + w_half) / (peak of fp8 * efficiency),  (bytes - operands in 16 bits + in 8) / bandwidth )
    casts   = (2 + 1) * elements cast / bandwidth

Forward casts the input, backward the gradient of the output. Weights are cast once a step, as they are updated
(costs/compute.py), and held in fp8 with their transpose, in the two bytes that bf16 takes: TransformerEngine's
`is_first_microbatch`, and primary weights in fp8. Where they are gathered for each pass (ZeRO 3) or offloaded, no copy
is held between passes, and each pass casts them. The input is stored in fp8 (costs/stored_activations.py), so backward
does not cast it. A cast is a kernel of its own that moves data only; that it is transposed or scaled in the same pass,
and its launch, is not priced. Sources: Micikevicius et al. 2022, "FP8 formats for deep learning"; DeepSeek-AI 2024,
"DeepSeek-V3", section 3.3; NVIDIA, TransformerEngine.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import FORWARD, Strategy

BYTE = 1  # of an element in fp8
CAST = 2 + BYTE  # B that the cast of an element of 16 bits reads and writes
# Of an element in a message: tiles of 128 have a scale of 4 bytes each (DeepSeek-AI 2024, sections 3.3.2 and 3.3.3).
SENT = BYTE + 4 / 128
Floats = NDArray[np.float64]


class Operands(NamedTuple):
    """What products in fp8 read, in elements of each layer: activations and gradients a sample, and weights."""

    activations: Floats
    gradients: Floats
    weights: Floats


@lru_cache(maxsize=1024)
def operands(model: Model) -> Operands:
    """Return what products in fp8 read; 0 for other layers."""
    found = np.zeros((3, len(model.layers)))
    for index, layer in enumerate(model.layers):
        if layer.fp8:
            found[:, index] = *layer.traits.operands(layer), layer.parameters
    return Operands(*found)


def is_used(model: Model) -> bool:
    """Return whether a layer computes in fp8."""
    return any(layer.fp8 for layer in model.layers)


def saved(found: Operands, batch: Any, size: int) -> Any:
    """Return the bytes that a product reads less than with operands of `size` bytes, (..., layers)."""
    return (batch * found.activations + found.weights) * (size - BYTE)


def cast_bytes(found: Operands, batch: Any, size: int, each_pass: bool = False) -> tuple[Any, Any]:
    """Return the bytes that casts read and write in the forward and in the backward pass, (..., layers).

    each_pass: whether either casts the weights, see casts_each_pass.
    """
    moved, weights = size + BYTE, each_pass * found.weights
    return (batch * found.activations + weights) * moved, (
        batch * found.gradients + weights
    ) * moved


@lru_cache(maxsize=1024)
def held_bytes(model: Model) -> float:
    """Return the bytes that casts of the trained weights of products in fp8 move."""
    layers = (layer for layer in model.layers if layer.fp8 and not layer.frozen)
    return float(CAST * sum(layer.parameters for layer in layers))


def casts_each_pass(strategy: Strategy) -> bool:
    """Return whether each pass casts the weights that it computes with, as they are gathered for it or offloaded."""
    gathered = bool(np.any(np.equal(strategy.zero, 3))) and strategy.gather != FORWARD
    return gathered or strategy.offload == "all"
