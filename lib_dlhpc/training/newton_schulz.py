"""Newton-Schulz iterations: the nearest semi-orthogonal matrix, nearly, by products of matrices alone.

The polynomial is that of Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"
(kellerjordan.github.io/posts/muon). After five iterations singular values above 0.002 of the norm are between 0.68 and
1.21.
"""

import numpy as np

from lib_dlhpc.costs.muon import STEPS, Matrices
from lib_dlhpc.layers.base.saved import Array

A, B, C = 3.4445, -4.7750, 2.0315  # each singular value s becomes A s + B s^3 + C s^5
TINY = 1e-7  # keeps a matrix of zeros
RMS = 0.2  # of the elements of a step, as of AdamW's (Liu et al. 2025, section 2.2)


def orthogonalized(matrix: Array) -> Array:
    """Return, of shape (rows, columns), U V' of the singular value decomposition U S V', nearly."""
    kind = matrix.dtype.type
    turned = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if turned else matrix
    x = x / (np.linalg.norm(x) + kind(TINY))
    for _ in range(STEPS):
        square = x @ x.T
        square = kind(B) * square + kind(C) * (square @ square)
        x = kind(A) * x + square @ x
    return x.T if turned else x


def orthogonal_step(flat: Array, shape: Matrices, begin: int, stop: int) -> Array:
    """Return elements begin ... stop - 1 of the step of stacked matrices: orthogonal, with elements of RMS in the mean.

    flat: the momentum of all matrices. Only those with an element of the part are orthogonalized.
    """
    if begin == stop:
        return flat[:0]
    stacked, size = flat.reshape(shape), shape.rows * shape.columns
    first, last = begin // size, -(-stop // size)
    found = np.concatenate([orthogonalized(matrix).ravel() for matrix in stacked[first:last]])
    scale = flat.dtype.type(RMS * np.sqrt(max(shape.rows, shape.columns)))
    step: Array = scale * found[begin - first * size : stop - first * size]
    return step
