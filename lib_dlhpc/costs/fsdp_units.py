"""Units of ZeRO 3: layers whose weights one collective gathers, and whose gradients one reduce-scatters.

A unit is a block of the network, as FSDP wraps it (Zhao et al. 2023, "PyTorch FSDP", section 3.2.1): a transformer's,
or the layers of another network that share what precedes the last dot of their names ("stage1.block2"). A layer
outside of blocks is a unit of its own, and so is a table, which a tied layer reads as well. With `zero_unit = "layer"`
each layer is one, and gradients travel in buckets, as in DeepSpeed's ZeRO 3 of 2021.
"""

from functools import lru_cache
from itertools import pairwise

import numpy as np

from lib_dlhpc.costs.buckets import Buckets, buckets
from lib_dlhpc.costs.exchanges import weights_read
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.spec.model import BLOCK, Layer, Model
from lib_dlhpc.spec.strategy import Strategy


@lru_cache(maxsize=1024)
def units(model: Model, kind: str) -> tuple[range, ...]:
    """Return the layers of each unit, from its first with weights to that of the next; kind: of ZERO_UNITS."""
    starts, before = list[int](), ""
    for index, (layer, read) in enumerate(zip(model.layers, weights_read(model), strict=True)):
        name = _block(layer) if kind == "block" else layer.name
        # An embedding table of another stage has weights that this rank never reads.
        if not read and not layer.parameters:
            continue
        if name != before:
            starts.append(index)
        before = name
    return tuple(range(*span) for span in pairwise([*starts, len(model.layers)]))


@lru_cache(maxsize=1024)
def unit_weights(model: Model, kind: str) -> tuple[int, ...]:
    """Return the elements of the weights that each unit reads."""
    read = weights_read(model)
    return tuple(sum(read[layer] for layer in unit) for unit in units(model, kind))


def buckets_of(model: Model, strategy: Strategy) -> Buckets:
    """Return what each collective sums of the gradients, the last first: blocks with ZeRO 3, else buckets."""
    element = BYTES[strategy.precision]
    if not by_block(strategy):
        return buckets(model, float(strategy.bucket), element)
    return _blocks_of(model, element)


@lru_cache(maxsize=1024)
def _blocks_of(model: Model, element: int) -> Buckets:
    last_first = units(model, "block")[::-1]
    sizes = [sum(model.layers[layer].trained for layer in unit) for unit in last_first]
    ends = [unit.start for unit in last_first]
    blocks = Buckets(element * np.array(sizes, float), np.array(ends, int))
    for each in blocks:
        each.setflags(write=False)
    return blocks


def by_block(strategy: Strategy) -> bool:
    """Return whether replicas exchange weights and gradients a block at a time."""
    return bool(strategy.zero == 3 and strategy.zero_unit == "block" and strategy.shards != 1)


def _block(layer: Layer) -> str:
    block = BLOCK.match(layer.name)
    if layer.traits.lookup or "." not in layer.name:
        return layer.name
    return block.group() if block else layer.name.rpartition(".")[0]
