"""What fp8 changes of linear layers: products read operands of one byte, which casts have written before them.

    product = max( (w + w_half) / (peak of fp8 * efficiency),  (bytes - operands in 16 bits + in 8) / bandwidth )
    casts   = (2 + 1) * elements cast / bandwidth

Forward casts the input and the weights; backward casts the gradient of the output, and the weights once more, for no
copy of them is held: they may be sharded, gathered or offloaded in between. (TransformerEngine can hold one over the
microbatches of a step, `is_first_microbatch`; it then casts weights once a step.) The input is stored in fp8
(costs/stored_activations.py), so backward does not cast it. A cast is a kernel of its own that moves data only; that
it is transposed or scaled in the same pass, and its launch, is not priced. Sources: Micikevicius et al. 2022, "FP8
formats for deep learning"; DeepSeek-AI 2024, "DeepSeek-V3", section 3.3.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.model import Model

BYTE = 1  # of an element in fp8
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


def cast_bytes(found: Operands, batch: Any, size: int) -> tuple[Any, Any]:
    """Return the bytes that casts read and write in the forward and in the backward pass, (..., layers)."""
    moved = size + BYTE
    return (
        (batch * found.activations + found.weights) * moved,
        (batch * found.gradients + found.weights) * moved,
    )
