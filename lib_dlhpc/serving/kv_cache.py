"""The KV cache of a sequence on one device, and what attention reads of it for a token, by kind of attention.

    multi-head, grouped-query  2 x KV heads x features of a head elements a token and layer
    latent (MLA)               one vector a token and layer, from which all heads expand keys and values
    indexer                    one key a token and layer, without a value
    state-space (Mamba-2)      one state a layer, whatever the number of tokens

A sliding window bounds the tokens that are stored.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from lib_dlhpc.layers.state_space import flop, state_elements
from lib_dlhpc.serving.service import INDEXER, STATE_SPACE, is_attention
from lib_dlhpc.spec.model import Layer, Model


class AttentionKind(NamedTuple):
    """Identical attention layers: how many, and what one of them needs on a device.

    window: tokens that a token sees; 0: all.
    stored: bytes a token in the KV cache; of a state-space layer, the bytes of its state.
    flop: of a token, per token that it sees in the cache.
    prompt_flop: the same within a prompt, where latent vectors are expanded first.
    key: of a measured rate.
    expand: FLOP to expand the latent vector of a token of an earlier chunk; those of its own chunk are a layer's.
    chunk: of a state-space layer, the tokens of a prompt between which it reads and writes its state; it sees a
        window of one token. 0: attention.
    kept: tokens outside the window stay in the cache, as each token selects others and reads them itself.
    """

    layers: int
    window: int
    stored: float
    flop: float
    prompt_flop: float
    key: str
    expand: float = 0.0
    chunk: int = 0
    kept: bool = False

    @property
    def moved(self) -> float:
        """Bytes that are read, or read and written, of each token that a token sees."""
        return self.stored * (2 if self.chunk else 1)

    def cache_bytes(self, tokens: int) -> float:
        """Return the bytes of a sequence with this number of tokens in the KV cache: layers x stored x tokens seen."""
        seen = min(tokens, self.window) if self.window and not self.kept else tokens
        return self.layers * self.stored * seen


def reads_context(layer: Layer) -> bool:
    """Return whether what a layer does depends on the tokens before."""
    return is_attention(layer.kind) or layer.kind in (STATE_SPACE, INDEXER)


def attention_kinds(
    model: Model, width: float, layers: tuple[Layer, ...]
) -> tuple[AttentionKind, ...]:
    """Return the kinds of attention with the layers of each; width: bytes of an element of the cache."""
    found: dict[AttentionKind, int] = {}
    options = model.options.get("attention", {})
    for layer in layers:
        if reads_context(layer):
            kind = _attention_kind(layer, options, width)
            found[kind] = found.get(kind, 0) + 1
    return tuple(kind._replace(layers=count) for kind, count in found.items())


def _attention_kind(layer: Layer, options: Mapping[str, Any], width: float) -> AttentionKind:
    of, key = layer.attributes, layer.traits.rate_key(layer)
    if layer.kind == STATE_SPACE:
        stored, one, prompt = width * state_elements(of), flop(0, of), flop(of["chunk"], of)
        return AttentionKind(1, 1, stored, one, prompt, key, chunk=of["chunk"])
    if layer.kind == INDEXER:  # a key, and no value
        each = 2.0 * of["heads"] * of["size"]
        return AttentionKind(1, 0, width * of["size"], each, each, key)
    if "values" in of:  # latent: keys and values are read as one vector, which all heads share
        latent, rotary, heads = options["latent"], of["rotated"], of["heads"]
        each = 2.0 * heads * (2 * latent + rotary)
        if "chosen" in of:
            few = options["chosen"]
            return AttentionKind(1, few, width * (latent + rotary), each, each, key, kept=True)
        prompt = 2.0 * heads * (of["size"] + of["values"])
        expand = 2.0 * latent * heads * (of["size"] - rotary + of["values"])
        return AttentionKind(1, 0, width * (latent + rotary), each, prompt, key, expand)
    features = layer.output_shape[-1]
    stored = 2 * features // of["heads"] * of["kv_heads"]
    return AttentionKind(1, of["window"], width * stored, 4.0 * features, 4.0 * features, key)
