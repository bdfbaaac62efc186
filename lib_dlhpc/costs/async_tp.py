"""Products cut into pieces of rows, beside the collectives of their tensor-parallel group: which ones, how many.

While ranks exchange one piece of n, they compute the next. With c s of computation and r s of communication a piece

    t = c + (n-1) max(c, r) + r

in place of n c + n r. The price of it: each piece pays the latency of its collective, and is a smaller product, which
reads the weights again. Cut are products whose output is reduced, and those whose input is all-gathered by position.

PyTorch's AsyncTP (torch/_inductor/fx_passes/micro_pipeline_tp.py) cuts fewer: a reduce-scatter only where one product
gives its input (_find_producer_matmul), not a sum of gradients, as of queries, keys and values, which are three
products, or of a gate and an up-projection. torchtitan compiles blocks, and nothing outside of them is cut. Pieces of
an output are copied, and added in a kernel of their own (torch/distributed/_symmetric_memory:
_fused_matmul_reduce_scatter_impl).

The host issues a product and its exchange in one call, whatever the pieces: TransformerEngine's userbuffers
(comm_gemm_overlap.cpp at 4757bfa, split_overlap_rs). AsyncTP loops over pieces in Python (_symmetric_memory,
_pipelined_multi_all_gather_and_consume).

Sources: Wang et al. 2023, "Overlap communication with dependent computation via decomposition in large deep learning
models" (ASPLOS); Jiang et al. 2024, "MegaScale", section 3.2.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.model import BLOCK, Layer, Model
from lib_dlhpc.spec.strategy import ASYNC_TP

REDUCES = ("all_reduce", "reduce_scatter")
# forward and backward, before a product; after one the reverse
GATHERED = ("all_gather", "reduce_scatter")


class Cut(NamedTuple):
    """Which products are cut, by direction; each has the number of the exchange that is cut like it."""

    many: int
    before: Mapping[str, Mapping[int, int]]  # exchanges that give the input of a product
    after: Mapping[str, Mapping[int, int]]  # and those that take its output
    forward: NDArray[np.int64]  # pieces of each layer
    backward: NDArray[np.int64]
    # Elements per sample that the kernels which add pieces move, after each exchange in forward.
    summed: NDArray[np.float64]
    issued_apart: bool  # whether the host issues each piece on its own

    def __bool__(self) -> bool:
        """Whether any product is cut."""
        return any(map(len, (*self.before.values(), *self.after.values())))


@lru_cache(maxsize=1024)
def cut_of(model: Model, many: int, overlap: str) -> Cut:
    """Return which products of a rank's part are cut into `many` pieces, and what is cut beside them.

    overlap: of TENSOR_OVERLAPS.
    """
    async_tp, summed = overlap == ASYNC_TP, np.zeros(len(model.layers))
    reduces = REDUCES[1:] if async_tp else REDUCES
    before: dict[str, dict[int, int]] = {"forward": {}, "backward": {}}
    after: dict[str, dict[int, int]] = {"forward": {}, "backward": {}}
    for number, layer in enumerate(model.layers):
        if many == 1 or not _can_be_cut(layer, many) or (async_tp and not BLOCK.match(layer.name)):
            continue
        ways = layer.attributes["forward"], layer.attributes["backward"]
        made, reads = number - 1, number + 1
        if _is_product(model, made) and layer.inputs == (model.layers[made].name,):
            if ways[0] in reduces:
                after["forward"][made] = number
                if async_tp:
                    summed[number] = prod(layer.input_shape) + prod(layer.output_shape)
            if ways == GATHERED[::-1]:
                before["backward"][made] = number
        if _is_product(model, reads) and model.layers[reads].inputs == (layer.name,):
            if ways[1] in reduces and not (async_tp and _adds(model, number)):
                after["backward"][reads] = number
            if ways == GATHERED:
                before["forward"][reads] = number
    ahead, back = (_pieces(model, many, before[way], after[way]) for way in before)
    return Cut(many, before, after, ahead, back, summed, async_tp)


def _can_be_cut(layer: Layer, many: int) -> bool:
    """Return whether each rank has a position for each piece of an exchange."""
    if layer.kind != "exchange" or layer.attributes["group"] != "tensor":
        return False
    if len(layer.output_shape) != 2:
        return False
    if layer.attributes["axis"]:  # whole: all positions; by features: not cut
        return layer.attributes["axis"] < 0 and layer.output_shape[0] >= many
    return min(stop - start for start, stop in pairwise(layer.attributes["cuts"])) >= many


def _adds(model: Model, number: int) -> bool:
    """Return whether the gradient of an exchange's output is a sum of several products; three give attention."""
    readers = [layer for layer in model.layers if model.layers[number].name in layer.inputs]
    names = {layer.name for layer in readers}
    attends = any("attention" in layer.kind and names & {*layer.inputs} for layer in model.layers)
    return len(readers) > 1 or attends


def _is_product(model: Model, number: int) -> bool:
    return 0 <= number < len(model.layers) and model.layers[number].kind == "dense"


def _pieces(model: Model, many: int, *cut: Mapping[int, int]) -> NDArray[np.int64]:
    pieces = np.ones(len(model.layers), np.int64)
    for one in cut:
        pieces[[*one, *one.values()]] = many
    return pieces
