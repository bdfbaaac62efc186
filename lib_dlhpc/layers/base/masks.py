"""Random masks that do not depend on the partition over ranks."""

import zlib
from functools import reduce
from math import prod

import numpy as np

from lib_dlhpc.layers.base.kind import Layer
from lib_dlhpc.layers.base.saved import PART, Array, Context
from lib_dlhpc.layers.base.slices import Part, part_of


def survivors(
    context: Context, stream: int, shape: tuple[int, ...], rate: float, *parts: Part | None
) -> Array:
    """Return which elements of (samples, ...) survive, a fraction 1 - rate to the nearest 2^-16.

    parts: the part of each sample that is needed; each is of what the one before it leaves. A counter-based
    generator (Salmon et al. 2011) starts at the sample's index in the global batch, so the mask does not depend
    on the partition over ranks.
    """
    many = prod(shape[1:])
    blocks = -(-many // 16)  # a counter value gives 16 numbers of 16 bits
    key = context.seed + (((context.step << 32) + stream) << 64)
    generator = np.random.Philox(counter=context.first_sample * blocks, key=key)
    cuts = [(axis + 1, ranges) for axis, ranges in filter(None, parts)]
    own_shape = reduce(part_of, cuts, np.empty((0, *shape[1:]))).shape[1:]
    mask = np.empty((shape[0], *own_shape), np.bool_)
    step = max(1, PART // max(1, many))  # samples at a time, so that only the mask is large
    for first in range(0, shape[0], step):
        own = mask[first : first + step]
        numbers = generator.random_raw(len(own) * blocks * 4).view(np.uint16)
        stays = numbers.reshape(len(own), blocks * 16)[:, :many] >= round(rate * 65536)
        own[...] = reduce(part_of, cuts, stays.reshape(len(own), *shape[1:]))
    return mask


def stream_of(layer: Layer) -> int:
    """Return the layer's own random stream."""
    return zlib.crc32(layer.name.encode())
