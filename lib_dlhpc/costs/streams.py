"""What frameworks move through memory beside the inputs, outputs and weights of layers.

The loss of a language model reads and writes its logits, 4 bytes each, several times: a copy of the 2-byte products,
the largest, the difference, its exponential, the sum and the quotient, 38 bytes in forward; in backward the product
with the gradient of the loss, its 2-byte copy and that in the order of the product, 18 bytes (Megatron-LM,
cross_entropy.py).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.model import Model

LOGIT = 4  # bytes
LOSS_FORWARD, LOSS_BACKWARD = 38, 18  # bytes a logit


@lru_cache(maxsize=256)
def loss_bytes(model: Model) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bytes a sample that the loss moves after each layer, in forward and in backward."""
    logits = np.array(
        [layer.mask_bytes / LOGIT if layer.kind == "dense" else 0.0 for layer in model.layers]
    )
    return LOSS_FORWARD * logits, LOSS_BACKWARD * logits
