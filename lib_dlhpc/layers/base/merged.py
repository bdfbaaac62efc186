"""Blocks of attention whose results are added in kernels of their own, in fp32 (PyTorch's context_parallel).

Counted is what kernels move that read and write each array once, as a compiler makes them: forward, the first block's
output in 32 bits, each sum with the next block, the result; backward, for each block the sums of the gradients of
queries, keys and values and a copy of the last two in one buffer, and at both ends an array of zeros and the result.
Source: torch/distributed/tensor/experimental/_attention.py: _SDPAMerger, _templated_ring_attention_backward.
"""

from math import prod

from lib_dlhpc.layers.base.kind import Layer

GATHERED = "gather"  # how keys and values are exchanged
NARROW, WIDE = 2, 4  # B of an element
CAST, SUM, COPY = NARROW + WIDE, NARROW + 2 * WIDE, 2 * WIDE


def merged(layer: Layer) -> tuple[float, float]:
    """Return the 2-byte elements of a sample that sums of blocks move, in forward and in backward."""
    ranks, _, way = layer.attributes.get("context", (1, 0, ""))
    if way != GATHERED:
        return 0.0, 0.0
    forward = 2 * CAST + (ranks - 1) * SUM
    backward = 3 * (WIDE + CAST) + ranks * (3 * SUM + 2 * COPY)
    each = prod(layer.output_shape) / NARROW
    return forward * each, backward * each
