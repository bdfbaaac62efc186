"""Losses: the mean over a global batch, of which a rank may hold a shard."""

import numpy as np

from lib_dlhpc.layers.base.saved import Array


def softmax_cross_entropy(logits: Array, labels: Array, samples: float) -> tuple[float, Array]:
    """Return this rank's part of the loss and its gradient.

    logits: (batch, ..., classes), overwritten. labels: (batch, ...), integers. samples: of the global batch, so
    that the sum over ranks is the mean over it, even with uneven parts. The gradient reuses the memory of the
    logits if it is contiguous.
    """
    flat, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    rows = np.arange(len(flat))
    terms = samples * (len(flat) // max(len(logits), 1))  # positions of all sequences
    flat -= flat.max(axis=1, keepdims=True)
    chosen = flat[rows, labels].astype(np.float64)
    np.exp(flat, out=flat)
    total = flat.sum(axis=1, keepdims=True)
    loss = float(np.sum(np.log(total[:, 0].astype(np.float64)) - chosen)) / max(terms, 1)
    flat /= total
    flat[rows, labels] -= 1
    flat /= logits.dtype.type(max(terms, 1))
    return loss, flat.reshape(logits.shape)


def mean_squared_error(outputs: Array, targets: Array, samples: float) -> tuple[float, Array]:
    """Return this rank's part of the mean of (output - target)^2 and its gradient; outputs are overwritten."""
    terms = samples * int(np.prod(outputs.shape[1:]))
    outputs -= targets.reshape(outputs.shape)
    loss = float(np.sum(np.square(outputs, dtype=np.float64))) / max(terms, 1)
    outputs *= outputs.dtype.type(2 / max(terms, 1))
    return loss, outputs
