"""What a narrow format changes of linear layers: products read operands of few bits, which casts have written before.

    product = max( (w + w_half) / (peak of it * efficiency),  (bytes - operands in 16 bits + in it) / bandwidth )
    casts   = (bytes of a cast) * elements cast / bandwidth

    format   an element, B              its cast, B
    fp8      1                          2 + 1: read and written
    nvfp4    4/8 + 1/16, its scale      2 + 2 + 2 * 9/16: read for the largest magnitude, read and written both by rows
                                        and by columns, which have other scales

Forward casts the input, backward the gradient of the output. Weights are cast once a step, as they are updated
(costs/roofline.py), and held in the format with their transpose, within the two bytes that bf16 takes:
TransformerEngine's `is_first_microbatch`, and primary weights in fp8. Where they are gathered for each pass (ZeRO 3) or
offloaded, no copy is held between passes, and each pass casts them. The input is stored in the format
(costs/stored_activations.py), so backward does not cast it. A cast is a kernel of its own that moves data only; scales
of fp8, the transpose in the same pass, Hadamard transforms of 16 x 16 and its launch are not priced. Sources:
Micikevicius et al. 2022, "FP8 formats for deep learning"; DeepSeek-AI 2024, "DeepSeek-V3", section 3.3; NVIDIA,
TransformerEngine; NVIDIA 2025, "Pretraining large language models with NVFP4", arXiv:2509.25149, figure 5 and
appendix B.1.

In fp8, what tensor ranks gather for a product is cast before it is sent, with its scales (parallel/layers.py): inputs,
and in backward gradients of outputs. Casts are still priced of all that is gathered; the libraries cast a rank's shard,
and transpose what they gathered. Sources: TransformerEngine, pytorch/module/layernorm_linear.py and base.py
(grad_output_preprocess) at 0004dbd; torchao, float8/float8_tensor_parallel.py at 0e0fba8.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.arrays import Floats
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.spec.strategy import FORWARD, FP8, NVFP4, Strategy

# Of an element in a message: tiles of 128 have a scale of 4 bytes each (DeepSeek-AI 2024, sections 3.3.2 and 3.3.3).
SENT = 1 + 4 / 128


class Format(NamedTuple):
    """Bytes of an element with its part of the scales, and those that the cast of one of 16 bits moves."""

    size: float
    cast: float


FORMS = {FP8: Format(1.0, 2 + 1), NVFP4: Format(9 / 16, 2 + 2 + 2 * 9 / 16)}


class Operands(NamedTuple):
    """What products in a narrow format read, in elements of each layer: activations and gradients a sample, weights.

    size, moved: bytes of an element, and of its cast.
    """

    activations: Floats
    gradients: Floats
    weights: Floats
    size: Floats
    moved: Floats


@lru_cache(maxsize=1024)
def operands(model: Model) -> Operands:
    """Return what products in a narrow format read; 0 for other layers."""
    counts = np.zeros((5, len(model.layers)))
    for index, layer in enumerate(model.layers):
        if layer.narrow:
            read = layer.traits.operands(layer)
            counts[:, index] = *read, layer.parameters, *FORMS[layer.narrow]
    return Operands(*counts)


def is_used(model: Model) -> bool:
    """Return whether a layer computes in a narrow format."""
    return any(layer.narrow for layer in model.layers)


def width(layer: Layer, size: float) -> float:
    """Return the bytes of an element that a layer's products read; size: those of other layers."""
    return FORMS[layer.narrow].size if layer.narrow else size


def saved(read: Operands, batch: Any, size: int) -> Any:
    """Return the bytes that a product reads less than with operands of `size` bytes, (..., layers)."""
    return (batch * read.activations + read.weights) * (size - read.size)


def cast_bytes(read: Operands, batch: Any, each_pass: bool = False) -> tuple[Any, Any]:
    """Return the bytes that casts read and write in the forward and in the backward pass, (..., layers).

    each_pass: whether either casts the weights, see casts_each_pass.
    """
    weights = each_pass * read.weights
    return (batch * read.activations + weights) * read.moved, (
        batch * read.gradients + weights
    ) * read.moved


@lru_cache(maxsize=1024)
def held_bytes(model: Model) -> float:
    """Return the bytes that casts of the trained weights of products in a narrow format move."""
    layers = (layer for layer in model.layers if layer.narrow and not layer.frozen)
    return float(sum(FORMS[layer.narrow].cast * layer.parameters for layer in layers))


def casts_each_pass(strategy: Strategy) -> bool:
    """Return whether each pass casts the weights that it computes with, as they are gathered for it or offloaded."""
    gathered = bool(np.any(np.equal(strategy.zero, 3))) and strategy.gather != FORWARD
    return gathered or strategy.offload == "all"
