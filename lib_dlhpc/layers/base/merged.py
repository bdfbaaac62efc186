"""Attention in blocks whose results are added in kernels of their own, in fp32 (PyTorch's context_parallel).

Counted is what kernels move that read and write each array once, as a compiler makes them: both ways, a copy of keys
and values in one buffer, to be gathered; forward, the first block's output in 32 bits, each sum with the next block,
the result; backward, for each block the sums of the gradients of queries, keys and values and a copy of the last two in
one buffer, and at both ends an array of zeros and the result. Arrays that are in 32 bits already are not cast:
torch.Tensor.to returns them. Source: torch/distributed/tensor/experimental/_attention.py: _SDPAMerger,
_templated_ring_attention, _templated_ring_attention_backward.
"""

from math import prod

from lib_dlhpc.layers.base.kind import Layer

GATHERED = "gather"  # how keys and values are exchanged
WIDE = 4  # B of an element of a sum
COPY = 2 * WIDE


def merged(layer: Layer, size: int) -> tuple[float, float]:
    """Return the bytes of a sample that sums of blocks move, in forward and in backward; size: B of an element."""
    ranks, _, way = layer.attributes.get("context", (1, 0, ""))
    if way != GATHERED:
        return 0.0, 0.0
    cast = size + WIDE if size != WIDE else 0
    add, keys = size + 2 * WIDE, 2 * 2 * size  # keys and values, into one buffer
    forward = keys + 2 * cast + (ranks - 1) * add
    backward = keys + 3 * (WIDE + cast) + ranks * (3 * add + 2 * COPY)
    elements = prod(layer.output_shape)
    return float(forward * elements), float(backward * elements)
