"""Products of stacked matrices, in parts of the size that the matrix library computes fastest.

OpenBLAS copies the matrices of large products first; small ones it computes as they lie.
"""

from math import prod

import numpy as np

from lib_dlhpc.layers.base.saved import Array, Saved

UNPACKED = 10**6  # multiplications in products that OpenBLAS computes without copies (AVX-512)
FEW = 64  # columns of a part below which that is slower than the copies
MANY = 1024  # columns of a part above which few rows are slower
CACHE = 1024 * 1024  # bytes of products that are summed at once


def multiply(left: Array, right: Array, out: Array) -> None:
    """Write left right, of matrices in two stacked dimensions."""
    size = prod(left.shape[2:])
    for part, product in zip(_parts(right, size, FEW), _parts(out, size, FEW), strict=True):
        np.matmul(left[:, :, None], part, out=product)


def add_outer(saved: Saved, left: Array, right: Array, total: Array) -> None:
    """Add the sum of left right' over the second stacked dimension to total.

    Products of many rows and few columns are faster than their transposes.
    """
    if left.shape[2] < right.shape[2]:
        left, right, total = right, left, total.swapaxes(1, 2)
    shape = left.shape[2], right.shape[2]
    size, rows = prod(shape), max(1, CACHE // max(1, total.nbytes))
    for start in range(0, left.shape[1], rows):
        pair = (_parts(each[:, start : start + rows], size, 4 * FEW) for each in (left, right))
        for a, b in zip(*pair, strict=True):
            products = saved.array((*a.shape[:3], *shape), a.dtype)
            np.matmul(a, b.swapaxes(3, 4), out=products)
            every = products.reshape(len(total), a.shape[1] * a.shape[2], *shape)
            total += every[:, 0] if every.shape[1] == 1 else every.sum(axis=1)


def _parts(matrices: Array, size: int, few: int) -> list[Array]:
    """Return the columns in parts, for products of `size` multiplications a column, and the rest of them.

    (stacked, stacked, parts, rows, columns); a power of 2, so that parts begin with a cache line. All in one, if that
    is less than `few`.
    """
    columns, unpacked = matrices.shape[-1], UNPACKED // max(1, size)
    most = 1 << min(MANY, unpacked).bit_length() >> 1
    if most < few or columns <= most:
        return [matrices[:, :, None]]
    whole = columns - columns % most
    parts = matrices[..., :whole].reshape(*matrices.shape[:3], -1, most).swapaxes(2, 3)
    return [parts, matrices[:, :, None, :, whole:]]
