"""Kinds of layers, one file each: counts, splits, and passes in numpy; base/kind.py says what a file declares.

    conv dense lstm                               products with weights
    experts gated_experts squared_relu_experts    and of those that a position chooses
    attention fused_attention                     products of positions
    latent_attention fused_latent_attention       products of positions, keys and values from one latent vector
    indexer sparse_latent_attention               and of positions that an indexer chooses
    embedding position_embedding label_embedding  tables
    timestep fixed_positions                      sines and cosines
    batch_norm layer_norm rms_norm head_norm width_norm group_norm  normalizations
    sinks                                         learned logits of the heads of attention
    relu leaky_relu prelu gelu silu tanh sigmoid softmax dropout
    glu                                           a gate times another input
    modulate shift                                scaled and shifted by a vector of the sample
    adapter                                       a low-rank product, added to another input
    max_pool avg_pool global_avg_pool             pools
    add multiply concat flatten gather tokens untokens upsample pixel_shuffle
    exchange halo receive table                   between ranks, placed by layout/

base/: what the files share. KINDS: the kinds by name, a mapping; a file is imported when it is first asked for.
"""

from typing import TYPE_CHECKING

from lib_dlhpc.lazy import lazy_names

if TYPE_CHECKING:
    from lib_dlhpc.layers.base.copies import expected_places
    from lib_dlhpc.layers.base.kind import KINDS, Counts, Kind, Layer, Site
    from lib_dlhpc.layers.base.saved import Context, Saved, Tensors

__all__ = [
    "KINDS",
    "Context",
    "Counts",
    "Kind",
    "Layer",
    "Saved",
    "Site",
    "Tensors",
    "expected_places",
]

lazy_names(
    __name__,
    {
        "base.copies": ["expected_places"],
        "base.kind": ["KINDS", "Counts", "Kind", "Layer", "Site"],
        "base.saved": ["Context", "Saved", "Tensors"],
    },
)
