"""Gradient buckets: each is reduced as soon as backward, from the last layer to the first, has filled it.

The buckets are those of Li et al. 2020, "PyTorch Distributed", section 3.2.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.spec.model import Model


class Buckets(NamedTuple):
    """Gradient buckets in the order in which backward fills them; arrays of shape (..., buckets)."""

    sizes: Any  # bytes; padded with 0 where bucket sizes differ
    last_layer: Any  # index of the layer whose backward completes the bucket


def buckets(model: Model, bucket: Any, element: int) -> Buckets:
    """Partition the gradients (`element` bytes a number) into buckets of at least `bucket` bytes, last layer first.

    Frozen layers have none. `bucket` may be an array; then the result is padded with empty buckets.
    """
    if np.ndim(bucket) == 0:
        return _scalar(model, float(bucket), element)
    values, inverse = np.unique(bucket, return_inverse=True)
    cuts = [_cut(model, float(value), element) for value in values]
    longest = max(len(sizes) for sizes, _ in cuts)
    sizes = np.array([list(s) + [0.0] * (longest - len(s)) for s, _ in cuts])
    last = np.array([list(at) + [at[-1]] * (longest - len(at)) for _, at in cuts])
    shape = (*np.shape(bucket), longest)
    return Buckets(sizes[inverse.ravel()].reshape(shape), last[inverse.ravel()].reshape(shape))


@lru_cache(maxsize=4096)
def _scalar(model: Model, bucket: float, element: int) -> Buckets:
    gradient_buckets = Buckets(*map(np.array, _cut(model, bucket, element)))
    for each in gradient_buckets:
        each.setflags(write=False)
    return gradient_buckets


@lru_cache(maxsize=4096)
def _cut(model: Model, bucket: float, element: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    counts = model.layer_trained.tolist()
    sizes, last, filling = [], [], 0.0
    for index in range(len(counts) - 1, -1, -1):
        filling += counts[index] * element
        if filling >= bucket:
            sizes.append(filling)
            last.append(index)
            filling = 0.0
    if filling or not sizes:
        sizes.append(filling)
        last.append(next((i for i, count in enumerate(counts) if count), 0))
    return tuple(sizes), tuple(last)


def ready_times(backward: Any, last_layer: Any) -> Any:
    """Return the seconds after the start of backward at which each bucket is complete."""
    done = np.cumsum(backward[..., ::-1], axis=-1)[..., ::-1]
    if last_layer.ndim == 1:
        return done[..., last_layer]
    shape = np.broadcast_shapes(done.shape[:-1], last_layer.shape[:-1])
    done = np.broadcast_to(done, (*shape, done.shape[-1]))
    return np.take_along_axis(
        done, np.broadcast_to(last_layer, (*shape, last_layer.shape[-1])), axis=-1
    )
