"""A network with its attention fused into one kernel, or not."""

from dataclasses import replace
from functools import lru_cache

from lib_dlhpc.layers.fused_attention import fused
from lib_dlhpc.layers.fused_latent_attention import fused_latent
from lib_dlhpc.spec.model import Model

PAIRS = {  # kinds apart and fused, and what makes one the other
    ("attention", "fused_attention"): fused,
    ("latent_attention", "fused_latent_attention"): fused_latent,
}
FUSED_KINDS = frozenset(fused for _, fused in PAIRS)  # attention in one kernel
CHANGES = {kind: change for kinds, change in PAIRS.items() for kind in kinds}


def with_attention(model: Model, fuse: bool) -> Model:
    """Return the network with all attention fused, or none; the same object if it is so."""
    return _changed(model, fuse) or model


@lru_cache(maxsize=64)
def _changed(model: Model, fuse: bool) -> Model | None:
    """Return the network if it becomes another one; None is of all networks that are equal, `model` of one of them."""
    others = {kinds[not fuse] for kinds in PAIRS}
    if all(layer.kind not in others for layer in model.layers):
        return None
    layers = (
        CHANGES[layer.kind](layer, fuse) if layer.kind in CHANGES else layer
        for layer in model.layers
    )
    return replace(model, layers=tuple(layers))
