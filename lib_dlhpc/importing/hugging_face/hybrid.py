"""Hybrids of state-space layers, attention, feed-forward networks and experts."""

from collections.abc import Sequence
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.configuration import Configuration
from lib_dlhpc.importing.hugging_face.fields import (
    Options,
    activation,
    attention,
    rotary_base,
    sizes,
)
from lib_dlhpc.spec.networks.hybrid import LETTERS

NAMES = {  # of layers in lists, and their letters
    **dict.fromkeys(("mamba", "linear_attention"), "M"),
    **dict.fromkeys(("attention", "full_attention"), "*"),
    "mlp": "-",
    "moe": "E",
}
# On which no count depends: limits and start of dt, kernels, precisions, the layers of multi-token prediction.
IGNORED = """
time_step_min time_step_max time_step_limit time_step_floor time_step_rank num_logits_to_keep use_mamba_kernels
mamba_ssm_cache_dtype residual_in_fp32 rescale_prenorm_residual mtp_layers_block_type mtp_hybrid_override_pattern
moe_shared_expert_overlap expand mamba_expand z_loss_coefficient init_method attn_rotary_emb rms_norm
"""


def nemotron_h(config: Configuration) -> Options:
    """Nemotron-H and Nemotron 3: layers of one part each, by the letters of a pattern or a list of names."""
    kinds = config.take("layers_block_type", "layer_types", default=None)
    pattern = (
        config.take("hybrid_override_pattern") if kinds is None else _letters(config, kinds, NAMES)
    )
    if not isinstance(pattern, str) or set(pattern) - {*LETTERS}:
        raise SpecError(
            f"{config.where}: hybrid_override_pattern = {pattern!r} is not understood; legal: letters M, *, - and E."
        )
    config.default(mlp_hidden_act="relu2", use_conv_bias=True, n_groups=8, conv_kernel=4)
    config.require("mlp_hidden_act", "relu2")
    config.require("hidden_dropout", 0)
    config.require("sliding_window", 0)
    _plain(config, "use_conv_bias", "attention_bias", "mlp_bias", "mamba_proj_bias", "use_bias")
    config.default(num_hidden_layers=len(pattern))
    size = config.take("head_dim", "attention_head_dim", default=0)
    found = {**sizes(config), "family": "hybrid", "pattern": pattern}
    layers, width = found.pop("layers"), config.take("intermediate_size", default=None)
    if layers != len(pattern):
        raise SpecError(
            f"{config.where}: num_hidden_layers = {layers}: hybrid_override_pattern has {len(pattern)} layers."
        )
    found["attention"] = attention(config, head_size=size)
    found["state_space"] = {
        "heads": config.take("mamba_num_heads"),
        "head_size": config.take("mamba_head_dim"),
        "state": config.take("ssm_state_size"),
        "groups": config.take("n_groups", "mamba_n_groups"),
        "kernel": config.take("conv_kernel", "mamba_d_conv"),
        "chunk": config.take("chunk_size", "mamba_chunk_size", default=128),
    }
    config.require("mamba_hidden_act", "silu")
    if "-" in pattern:
        found["feed_forward"] = {"features": width, "activation": "relu", "gated": False}
    experts = _nemotron_experts(config)
    return found | ({"experts": experts} if "E" in pattern else {})


def _nemotron_experts(config: Configuration) -> Options:
    """Return the experts, which files name even where no layer has them."""
    config.require("moe_latent_size", 0)
    config.require("n_shared_experts", 1)
    groups, some = config.take("n_group", default=1), config.take("topk_group", default=1)
    return {
        "experts": config.take("n_routed_experts", "num_local_experts", default=0),
        "chosen": config.take("num_experts_per_tok", default=0),
        "features": config.take("moe_intermediate_size", default=0),
        "shared": config.take("moe_shared_expert_intermediate_size", default=0),
        "activation": "squared_relu",
        **({"groups": groups, "chosen_groups": some} if groups > 1 else {}),
    }


def bamba(config: Configuration) -> Options:
    """Bamba: a state-space layer or attention, then a gated feed-forward network, each with a norm before it."""
    config.default(num_key_value_heads=8, num_attention_heads=32)
    first = config.take("attn_layer_indices", default=[])
    layers = range(config.take("num_hidden_layers"))
    letters = ["*" if number in first else "M" for number in layers]
    return {
        **_blocks(config, letters, "-", rotary=True),
        "feed_forward": {
            "features": config.take("intermediate_size"),
            "activation": activation(config),
        },
    }


def granite_hybrid(config: Configuration) -> Options:
    """Granite 4.0 H: as Bamba, with experts beside a shared network, or with that network alone."""
    config.default(num_local_experts=8, num_experts_per_tok=2, shared_intermediate_size=1024)
    config.require("normalization_function", "rmsnorm")
    kinds = config.take("layer_types", "layers_block_type", default=None)
    letters = _letters(config, kinds or ["mamba"] * config.take("num_hidden_layers"), NAMES)
    if "-" in letters or "E" in letters:
        raise SpecError(f"{config.where}: layer_types = {kinds!r}: legal: mamba, attention.")
    config.require("position_embedding_type", "nope", "rope")
    turned = config.take("position_embedding_type", default="nope") == "rope"
    shared, function = config.take("shared_intermediate_size"), activation(config)
    many, chosen = config.take("num_local_experts"), config.take("num_experts_per_tok")
    features = config.take("intermediate_size")
    found = _blocks(config, letters, "E" if many else "-", rotary=turned)
    if not many:
        return found | {"feed_forward": {"features": shared, "activation": function}}
    own = {"experts": many, "chosen": chosen, "features": features, "shared": shared}
    return found | {"experts": own | {"activation": function}}


def mamba2(config: Configuration) -> Options:
    """Mamba-2: state-space layers alone."""
    config.default(n_groups=8, conv_kernel=4, state_size=128, num_heads=128, head_dim=64)
    config.require("hidden_act", "silu")
    _plain(config, "use_conv_bias", "use_bias")
    found = sizes(config)
    pattern = "M" * found.pop("layers")
    return {
        **found,
        "family": "hybrid",
        "pattern": pattern,
        "state_space": {
            "heads": config.take("num_heads"),
            "head_size": config.take("head_dim"),
            "state": config.take("state_size"),
            "groups": config.take("n_groups"),
            "kernel": config.take("conv_kernel"),
            "chunk": config.take("chunk_size", default=256),
        },
    }


def _blocks(config: Configuration, letters: Sequence[str], after: str, *, rotary: bool) -> Options:
    """Return a network whose layers have a state-space layer or attention, each before `after`."""
    config.default(mamba_n_heads=128, mamba_n_groups=1, mamba_d_state=256, mamba_d_conv=4)
    _plain(config, "mamba_conv_bias", "attention_bias", "mlp_bias", "mamba_proj_bias")
    found = sizes(config)
    if (layers := found.pop("layers")) != len(letters):
        raise SpecError(
            f"{config.where}: num_hidden_layers = {layers}: {len(letters)} layers are listed."
        )
    heads, size = config.take("mamba_n_heads"), config.take("mamba_d_head", default="auto")
    if size == "auto":
        size = config.take("mamba_expand", default=2) * found["hidden"] // heads
    base = rotary_base(config)
    return {
        **found,
        "family": "hybrid",
        "pattern": "".join(letter + after for letter in letters),
        "attention": attention(config, rotary_base=base if rotary else 0),
        "state_space": {
            "heads": heads,
            "head_size": size,
            "state": config.take("mamba_d_state"),
            "groups": config.take("mamba_n_groups"),
            "kernel": config.take("mamba_d_conv"),
            "chunk": config.take("mamba_chunk_size", default=256),
        },
    }


def _letters(config: Configuration, kinds: Any, names: dict[str, str]) -> str:
    """Return the letters of layers that are listed by name."""
    if not isinstance(kinds, list) or any(kind not in names for kind in kinds):
        raise SpecError(
            f"{config.where}: layer_types = {kinds!r} is not understood; legal: a list of {', '.join(names)}."
        )
    return "".join(names[kind] for kind in kinds)


def _plain(config: Configuration, convolution: str, *biases: str) -> None:
    """Raise SpecError for a convolution without a bias, or other products with one; pass over what changes no count."""
    config.require(convolution, True)
    for name in biases:
        if config.take(name, default=False):
            raise SpecError(f"{config.where}: {name} = true is not modeled; legal: false.")
    for name in IGNORED.split():
        config.take(name, default=None)
