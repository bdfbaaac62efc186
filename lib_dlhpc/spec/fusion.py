"""A network with its attention fused into one kernel, or not."""

from dataclasses import replace
from functools import lru_cache

from lib_dlhpc.spec.model import Model

PLAIN, LATENT = ATTENTION = (  # kinds apart and fused
    ("attention", "fused_attention"),
    ("latent_attention", "fused_latent_attention"),
)
SPARSE = ("indexer", "sparse_latent_attention")  # always fused
FUSED_KINDS = frozenset((*(fused for _, fused in ATTENTION), *SPARSE))  # attention in one kernel


def with_attention(model: Model, fuse: bool) -> Model:
    """Return the network with all attention fused, or none; the same object if it is so."""
    return _changed(model, fuse) or model


@lru_cache(maxsize=64)
def _changed(model: Model, fuse: bool) -> Model | None:
    """Return the network if it becomes another one; None is of all networks that are equal, `model` of one of them."""
    others = {kinds[not fuse] for kinds in ATTENTION}
    if all(layer.kind not in others for layer in model.layers):
        return None
    from lib_dlhpc.layers.fused_attention import fused  # other networks need neither of these two
    from lib_dlhpc.layers.fused_latent_attention import fused_latent

    changes = dict.fromkeys(PLAIN, fused) | dict.fromkeys(LATENT, fused_latent)
    layers = (
        changes[layer.kind](layer, fuse) if layer.kind in changes else layer
        for layer in model.layers
    )
    return replace(model, layers=tuple(layers))
