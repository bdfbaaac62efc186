"""Products cut into pieces of rows, beside the collectives of their tensor-parallel group: which ones, how many.

While ranks exchange one piece of n, they compute the next. With c s of computation and r s of communication a piece

    t = c + (n-1) max(c, r) + r

in place of n c + n r. The price of it: each piece pays the latency of its collective, and is a smaller product, which
reads the weights again. Cut are products whose output is reduced, and those whose input is all-gathered by position.

Sources: Wang et al. 2023, "Overlap communication with dependent computation via decomposition in large deep learning
models" (ASPLOS); Jiang et al. 2024, "MegaScale", section 3.2.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.spec.model import Layer, Model

REDUCES = ("all_reduce", "reduce_scatter")
GATHERED = (
    "all_gather",
    "reduce_scatter",
)  # forward and backward, before a product; after one the reverse


class Cut(NamedTuple):
    """Which products are cut, by direction; each has the number of the exchange that is cut like it."""

    many: int
    before: Mapping[str, Mapping[int, int]]  # exchanges that give the input of a product
    after: Mapping[str, Mapping[int, int]]  # and those that take its output
    forward: NDArray[np.int64]  # pieces of each layer
    backward: NDArray[np.int64]

    def __bool__(self) -> bool:
        """Whether any product is cut."""
        return any(map(len, (*self.before.values(), *self.after.values())))


@lru_cache(maxsize=1024)
def cut_of(model: Model, many: int) -> Cut:
    """Return which products of a rank's part are cut into `many` pieces, and what is cut beside them."""
    before: dict[str, dict[int, int]] = {"forward": {}, "backward": {}}
    after: dict[str, dict[int, int]] = {"forward": {}, "backward": {}}
    for number, layer in enumerate(model.layers):
        if many == 1 or not _can_be_cut(layer, many):
            continue
        ways = layer.attributes["forward"], layer.attributes["backward"]
        made, reads = number - 1, number + 1
        if _is_product(model, made) and layer.inputs == (model.layers[made].name,):
            if ways[0] in REDUCES:
                after["forward"][made] = number
            if ways == GATHERED[::-1]:
                before["backward"][made] = number
        if _is_product(model, reads) and model.layers[reads].inputs == (layer.name,):
            if ways[1] in REDUCES:
                after["backward"][reads] = number
            if ways == GATHERED:
                before["forward"][reads] = number
    pieces = (_pieces(model, many, before[way], after[way]) for way in ("forward", "backward"))
    return Cut(many, before, after, *pieces)


def _can_be_cut(layer: Layer, many: int) -> bool:
    """Return whether each rank has a position for each piece of an exchange."""
    if layer.kind != "exchange" or layer.attributes["group"] != "tensor":
        return False
    if len(layer.output_shape) != 2:
        return False
    if layer.attributes["axis"]:  # whole: all positions; by features: not cut
        return layer.attributes["axis"] < 0 and layer.output_shape[0] >= many
    return min(stop - start for start, stop in pairwise(layer.attributes["cuts"])) >= many


def _is_product(model: Model, number: int) -> bool:
    return 0 <= number < len(model.layers) and model.layers[number].kind == "dense"


def _pieces(model: Model, many: int, *cut: Mapping[int, int]) -> NDArray[np.int64]:
    found = np.ones(len(model.layers), np.int64)
    for one in cut:
        found[[*one, *one.values()]] = many
    return found
