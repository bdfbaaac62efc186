"""What the layers of a part exchange: halos, samples of experts, repeated all-gathers, gradients of shared weights."""

from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.segments import segments
from lib_dlhpc.layout.cuts import Range
from lib_dlhpc.spec.model import Layer, Model


@lru_cache(maxsize=1024)
def recomputed(model: Model, recompute: str) -> NDArray[np.bool_]:
    """Return which layers the backward pass recomputes, shape (layers,)."""
    mask = np.zeros(len(model.layers), dtype=bool)
    for segment in segments(model, recompute):
        mask[list(segment.repeated)] = True
    return mask


@lru_cache(maxsize=1024)
def regathered(model: Model, recompute: str) -> tuple[Layer, ...]:
    """Return the layers that all-gather the input of a product, and repeat it for the gradient of the weights.

    Only the shards are stored. The repeated all-gather overlaps the product for the gradient of the input
    (Korthikanti et al. 2022, section 4.2.2).
    """
    repeated = recomputed(model, recompute)
    return tuple(
        layer
        for layer, twice in zip(model.layers, repeated, strict=True)
        if not twice
        and layer.kind == "exchange"
        and (layer.attributes["forward"], layer.attributes["backward"])
        == ("all_gather", "reduce_scatter")
    )


def halo_elements(layer: Layer) -> tuple[int, int]:
    """Return the elements of a sample that a rank receives and sends in a halo layer."""
    options = layer.attributes
    row = prod(layer.input_shape) // max(1, layer.input_shape[options["axis"]])
    borrowed, lent = _rows(options["owned"], options["needed"], options["rank"])
    return row * borrowed, row * lent


# A deep network has few kinds of halo, and each rank meets them again and again.
@lru_cache(maxsize=1024)
def _rows(owned: tuple[Range, ...], needed: tuple[Range, ...], rank: int) -> tuple[int, int]:
    """Return the rows that a rank receives and sends."""
    total = (min(start for start, _ in owned), max(stop for _, stop in owned))
    borrowed = _overlap(needed[rank], total) - _overlap(needed[rank], owned[rank])
    lent = sum(
        max(0, _overlap(owned[rank], wanted) - _overlap(_common(owned[rank], mine), wanted))
        for other, (wanted, mine) in enumerate(zip(needed, owned, strict=True))
        if other != rank
    )
    return borrowed, lent


def halo_pairs(layer: Layer, direction: str) -> tuple[tuple[int, int, float], ...]:
    """Return who sends how many elements to whom in a halo; backward they go home."""
    options = layer.attributes
    row = prod(layer.input_shape) / max(1, layer.input_shape[options["axis"]])
    return _pairs(options["owned"], options["needed"], row, direction)


@lru_cache(maxsize=1024)
def _pairs(
    owned: tuple[Range, ...], needed: tuple[Range, ...], row: float, direction: str
) -> tuple[tuple[int, int, float], ...]:
    pairs = []
    for taker, wanted in enumerate(needed):
        has = owned[taker]
        for giver, own in enumerate(owned):
            if giver != taker:
                # What a rank has itself it never asks others for.
                rows = _overlap(wanted, own) - _overlap(wanted, _common(own, has))
                ends = (giver, taker) if direction == "forward" else (taker, giver)
                pairs += [(*ends, rows * row)] if rows > 0 else []
    return tuple(pairs)


def _common(first: Range, other: Range) -> Range:
    return max(first[0], other[0]), min(first[1], other[1])


def _overlap(first: Range, other: Range) -> int:
    start, stop = _common(first, other)
    return max(0, stop - start)


def routed_elements(layer: Layer) -> int:
    """Return the elements of a sample that a rank sends to the experts of a layer; it receives as many."""
    return int(layer.attributes["routed"] * layer.output_shape[-1])


@lru_cache(maxsize=1024)
def weights_read(model: Model) -> tuple[int, ...]:
    """Return the elements of the weights that each layer reads: a tied layer reads another's."""
    tables = {layer.name: layer.parameters for layer in model.layers}
    return tuple(
        0
        if layer.traits.stand_in
        else layer.parameters + tables.get(layer.attributes.get("tied", ""), 0)
        for layer in model.layers
    )


def extra_reductions(model: Model) -> list[tuple[str, float]]:
    """Return the groups beside data over which gradients are reduced, each with the share of them that is."""
    reductions: dict[str, int] = {}
    for layer in model.layers:
        for group in layer.attributes.get("sum", ()):
            reductions[group] = reductions.get(group, 0) + layer.trained
    return [(group, count / max(1, model.trained)) for group, count in reductions.items()]
