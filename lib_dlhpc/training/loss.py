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


def split_cross_entropy(
    log_probabilities: Array, labels: Array, samples: float, first: int
) -> tuple[float, Array]:
    """Return this rank's part of the loss, and the gradient of its logits, where ranks have some classes each.

    log_probabilities: (batch, ..., own classes), overwritten. first: the number of the first one. The rank that has
    a position's label contributes its term. Otherwise as softmax_cross_entropy.
    Source: Shoeybi et al. 2019, "Megatron-LM", section 3.
    """
    many = log_probabilities.shape[-1]
    flat, labels = log_probabilities.reshape(-1, many), labels.reshape(-1) - first
    terms = samples * (len(flat) // max(len(log_probabilities), 1))
    rows = np.flatnonzero((labels >= 0) & (labels < many))
    chosen = rows, labels[rows]
    loss = -float(flat[chosen].sum(dtype=np.float64)) / max(terms, 1)
    np.exp(flat, out=flat)
    flat[chosen] -= 1
    flat /= flat.dtype.type(max(terms, 1))
    return loss, flat.reshape(log_probabilities.shape)


def mean_squared_error(outputs: Array, targets: Array, samples: float) -> tuple[float, Array]:
    """Return this rank's part of the mean of (output - target)^2 and its gradient; outputs are overwritten."""
    terms = samples * int(np.prod(outputs.shape[1:]))
    outputs -= targets.reshape(outputs.shape)
    loss = float(np.sum(np.square(outputs, dtype=np.float64))) / max(terms, 1)
    outputs *= outputs.dtype.type(2 / max(terms, 1))
    return loss, outputs
