"""A network with its attention fused into one kernel, or not."""

from dataclasses import replace
from functools import lru_cache

from lib_dlhpc.layers.fused_attention import fused
from lib_dlhpc.spec.model import Model

KINDS = ("attention", "fused_attention")


@lru_cache(maxsize=64)
def with_attention(model: Model, fuse: bool) -> Model:
    """Return the network with all attention fused, or none; the same object if it is so."""
    if all(layer.kind != KINDS[not fuse] for layer in model.layers):
        return model
    layers = (fused(layer, fuse) if layer.kind in KINDS else layer for layer in model.layers)
    return replace(model, layers=tuple(layers))
