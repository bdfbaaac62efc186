"""What frameworks hold and move in memory for the loss of a language model, beside inputs and outputs of layers.

in-place   logits have 4 bytes, and become their gradients in the same array; then these get a 2-byte copy. Moved are a
           copy of the 2-byte products, the largest, the difference, its exponential, the sum and the quotient, 38 bytes
           a logit in forward; in backward the product with the gradient of the loss, its 2-byte copy and that in the
           order of the product, 18 bytes (Megatron-LM, cross_entropy.py).
separate   each kernel has an array of its own (PyTorch's cross_entropy of a 32-bit copy, with autograd): the 2-byte
           products, the copy, the logarithm of the softmax, and in backward the gradients of the loss and of the
           softmax. The last takes the place of the copy; a caching allocator gives none of them that of the products,
           which is too small, but their 2-byte gradients do: 14 bytes. Where tensor ranks have parts of the logits, the
           softmax is made of differences, exponentials and sums, and a fourth 4-byte array is live (torch/distributed/
           tensor/parallel/loss.py): 18 bytes.
fused      one kernel in each direction reads 2-byte logits and writes 2-byte gradients (torch.compile): 4 bytes.
"""

from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.loss import is_logits, loss_of
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.spec.strategy import IN_PLACE, ONE_KERNEL, SEPARATE

LOGIT = 4  # bytes
LOSS_FORWARD, LOSS_BACKWARD = 38, 18  # bytes a logit
MOVED = {
    IN_PLACE: (LOSS_FORWARD, LOSS_BACKWARD),
    SEPARATE: (14, 22),  # 2 + 4, 4 + 4; 4, 4 + 4 + 4, 4 + 2
    ONE_KERNEL: (2, 4),
}
ARRAYS, ARRAYS_OF_PARTS = 3, 4  # of 4 bytes a logit, in separate kernels


@lru_cache(maxsize=256)
def loss_bytes(model: Model) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bytes a sample that the loss moves after each layer, in forward and in backward."""
    counts = [
        (layer.mask_bytes / LOGIT, *MOVED[loss_of(layer)]) if is_logits(layer) else (0, 0, 0)
        for layer in model.layers
    ]
    logits, forward, backward = np.array(counts, np.float64).T
    return forward * logits, backward * logits


def kept_for_loss(layer: Layer, size: int) -> int:
    """Return the bytes of a sample that the loss of a layer of logits stores; size: bytes of an element."""
    element = size if loss_of(layer) == ONE_KERNEL else max(size, LOGIT)
    return element * prod(layer.output_shape)


def held_by_loss(layer: Layer, size: int) -> int:
    """Return the bytes of a sample that the loss of a layer of logits holds at its peak, with their gradients."""
    way, wide, narrow = loss_of(layer), max(size, LOGIT), size if size < LOGIT else 0
    if way == ONE_KERNEL:
        element = 2 * size
    elif way == SEPARATE:
        element = wide * (ARRAYS_OF_PARTS if _in_parts(layer) else ARRAYS) + narrow
    else:
        element = wide + narrow
    return element * prod(layer.output_shape)


def _in_parts(layer: Layer) -> bool:
    """Return whether tensor ranks have some of the logits of each token."""
    axis, _ = layer.attributes.get("elements", (-1, ()))
    return bool(axis == len(layer.output_shape) - 1)
