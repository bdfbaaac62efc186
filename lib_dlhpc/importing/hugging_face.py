"""Causal language models of Hugging Face transformers, from the fields of their `config.json`."""

from collections.abc import Callable, Mapping
from typing import Any

from lib_dlhpc.errors import SpecError, suggest
from lib_dlhpc.importing.configuration import Configuration
from lib_dlhpc.importing.imported import Imported
from lib_dlhpc.spec.networks import build

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    **dict.fromkeys(("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu"),
}
Options = dict[str, Any]


def from_config(
    table: Mapping[str, Any], sequence: int = 0, where: str = "config.json"
) -> Imported:
    """Return the network of a configuration; sequence: words of a sample; 0: as many as it has positions for.

    Raises SpecError for a model type that is not known, and lists the keys and values that are not understood.
    """
    config = Configuration(table, where)
    kind = config.take("model_type")
    if kind not in READERS:
        raise SpecError(
            f"{where}: model_type = {kind!r}: must be one of {', '.join(READERS)}."
            f"{suggest(str(kind), READERS)}"
        )
    options = READERS[kind](config)
    positions = config.take(
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", default=0
    )
    options["sequence"] = sequence or positions
    if not options["sequence"]:
        raise SpecError(f"{where}: says no length of a sequence; give one: --sequence 2048.")
    model = build("decoder", {key: value for key, value in options.items() if value is not None})
    return Imported(model, where, config.notes())


def _common(config: Configuration, tied: bool = False) -> Options:
    return {
        "layers": config.take("num_hidden_layers", "n_layer", "n_layers"),
        "hidden": config.take("hidden_size", "n_embd", "d_model", "n_embed"),
        "vocabulary": config.take("vocab_size"),
        "tied": config.take("tie_word_embeddings", default=tied),
    }


def _heads(config: Configuration, **more: Any) -> Options:
    heads = config.take("num_attention_heads", "n_head", "n_heads")
    found = {"heads": heads, "dropout": config.take("attention_dropout", "attn_pdrop", default=0.0)}
    if "kv_heads" not in more:
        found["kv_heads"] = config.take("num_key_value_heads", default=heads)
    return found | {key: value for key, value in more.items() if value}


def _rotary(config: Configuration) -> int:
    """Return the base of the angles of positions; extensions to longer sequences stay a note."""
    inner = config.table.get("rope_parameters", {})
    base = inner.get("rope_theta", 10000) if isinstance(inner, Mapping) else 10000
    return int(config.take("rope_theta", "rotary_emb_base", default=base))


def _activation(config: Configuration, default: str = "silu") -> str:
    name = config.take(
        "hidden_act", "hidden_activation", "activation_function", "activation", default=default
    )
    if name not in ACTIVATIONS:
        raise SpecError(
            f"{config.where}: activation {name!r} is not understood; legal: {', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[name]


def _window(config: Configuration) -> Options:
    """Return a window of all layers, or of all but each n-th, in Gemma."""
    window = config.take("sliding_window", default=0)
    use = config.take("use_sliding_window", default=True)
    types = config.take("layer_types", default=["sliding_attention"] if window and use else [])
    full = [kind == "full_attention" for kind in types]
    every = full.index(True) + 1 if True in full else 0
    expected = [bool(every) and number % every == 0 for number in range(1, len(types) + 1)]
    if set(types) - {"full_attention", "sliding_attention"} or full != expected:
        raise SpecError(
            f"{config.where}: layer_types = {types!r} is not understood; legal: sliding_attention, with each n-th"
            " layer full_attention."
        )
    return {"window": window, "full_every": every} if every != 1 and types else {}


def _llama(config: Configuration, **more: Any) -> Options:
    """Llama and what differs from it in sizes, biases of queries, keys and values, and windows alone."""
    bias = config.take("attention_bias", default=False)
    config.require("clip_qkv", 0)
    use = {
        "head_size": config.take("head_dim", default=0),
        "rotary_base": _rotary(config),
        "qkv_bias": bias,
        "output_bias": bias,
        **_window(config),
        **more.pop("attention", {}),
    }
    return {
        **_common(config),
        "attention": _heads(config, **use),
        "feed_forward": {
            "features": config.take("intermediate_size"),
            "activation": _activation(config),
            "bias": config.take("mlp_bias", default=False),
        },
        **more,
    }


def _qwen2(config: Configuration) -> Options:
    return _llama(config, attention={"qkv_bias": config.take("qkv_bias", default=True)})


def _qwen3(config: Configuration) -> Options:
    return _llama(
        config, attention={"normed": True, "head_size": config.take("head_dim", default=128)}
    )


def _gemma(config: Configuration) -> Options:
    config.require("use_bidirectional_attention", False)
    return _llama(config) | {"tied": config.take("tie_word_embeddings", default=True)}


def _gemma2(config: Configuration, every: int = 2) -> Options:
    pattern = config.take("sliding_window_pattern", default=every)
    layers = range(1, config.take("num_hidden_layers") + 1)
    kinds = ["sliding_attention" if number % pattern else "full_attention" for number in layers]
    config.table.setdefault("layer_types", kinds)
    return {**_gemma(config), "block": "sandwich"}


def _gemma3(config: Configuration) -> Options:
    found = _gemma2(config, every=6)
    found["attention"]["normed"] = True
    return found


def _phi3(config: Configuration) -> Options:
    return {
        **_llama(config),
        "dropout": config.take("resid_pdrop", default=0.0),
        "word_dropout": config.take("embd_pdrop", default=0.0),
    }


def _mixture(config: Configuration, experts: str, features: str, **more: Any) -> Options:
    config.require("mlp_only_layers", [])
    config.require("decoder_sparse_step", 1)
    return {
        "experts": config.take(experts),
        "chosen": config.take("num_experts_per_tok"),
        "features": config.take(features),
        "activation": _activation(config),
        **more,
    }


def _mixtral(config: Configuration) -> Options:
    found = _llama(config)
    return {**found, "experts": _mixture(config, "num_local_experts", "intermediate_size")}


def _qwen2_moe(config: Configuration) -> Options:
    shared = config.take("shared_expert_intermediate_size")
    found = _mixture(
        config, "num_experts", "moe_intermediate_size", shared=shared, shared_gate=True
    )
    return {**_qwen2(config), "experts": found}


def _qwen3_moe(config: Configuration) -> Options:
    return {**_qwen3(config), "experts": _mixture(config, "num_experts", "moe_intermediate_size")}


def _deepseek_v2(config: Configuration) -> Options:
    """Groups limit a token's experts with one method of routing alone."""
    config.require("topk_method", "greedy", "group_limited_greedy")
    limited = config.take("topk_method", default="greedy") != "greedy"
    groups, some = config.take("n_group", default=1), config.take("topk_group", default=0)
    return _deepseek(config, groups=groups if limited else 1, chosen_groups=some if limited else 0)


def _deepseek_v3(config: Configuration) -> Options:
    """Groups are those of transformers where the file has none."""
    config.require("topk_method", "noaux_tc")
    groups, some = config.take("n_group", default=8), config.take("topk_group", default=4)
    return _deepseek(config, groups=groups, chosen_groups=some)


def _deepseek(config: Configuration, groups: int, chosen_groups: int) -> Options:
    config.require("attention_bias", False)
    config.require("moe_layer_freq", 1)
    found = _llama(config)
    features = config.take("moe_intermediate_size")
    more = {
        "dense": config.take("first_k_dense_replace", default=0),
        "shared": features * config.take("n_shared_experts", default=0),
    }
    if groups > 1:
        more |= {"groups": groups, "chosen_groups": chosen_groups}
    found["experts"] = _mixture(config, "n_routed_experts", "moe_intermediate_size", **more)
    found["attention"] = {
        "heads": config.take("num_attention_heads"),
        "latent": config.take("kv_lora_rank"),
        "queries": config.take("q_lora_rank", default=0),
        "plain": config.take("qk_nope_head_dim"),
        "rotated": config.take("qk_rope_head_dim"),
        "values": config.take("v_head_dim"),
    }
    return found


def _plain(config: Configuration, features: int, activation: str, *, bias: bool = True) -> Options:
    """Return a feed-forward network of two products."""
    return {"features": features, "activation": activation, "gated": False, "bias": bias}


def _gpt2(config: Configuration) -> Options:
    config.require("add_cross_attention", False)
    common = _common(config, tied=True)
    dropout = config.take("resid_pdrop", default=0.1)
    width = config.take("n_inner", default=4 * common["hidden"])
    return {
        **common,
        "norm": "layer_norm",
        "positions": config.take("n_positions", default=1024),
        "dropout": dropout,
        "word_dropout": config.take("embd_pdrop", default=0.1),
        "attention": _heads(config, kv_heads=0, qkv_bias=True, output_bias=True),
        "feed_forward": _plain(config, width, _activation(config, "gelu_new")),
    }


def _opt(config: Configuration) -> Options:
    common = _common(config, tied=True)
    config.require("do_layer_norm_before", True)
    config.require("_remove_final_layer_norm", False)
    config.require("word_embed_proj_dim", common["hidden"])
    config.require("enable_bias", True)
    config.require("layerdrop", 0.0)
    config.require("layer_norm_elementwise_affine", True)
    return {
        **common,
        "norm": "layer_norm",
        "positions": config.take("max_position_embeddings") + 2,
        "dropout": config.take("dropout", default=0.1),
        "attention": _heads(config, kv_heads=0, qkv_bias=True, output_bias=True)
        | {"dropout": config.take("attention_dropout", default=0.0)},
        "feed_forward": _plain(config, config.take("ffn_dim"), _activation(config, "relu")),
    }


def _bloom(config: Configuration) -> Options:
    common = _common(config, tied=True)
    config.require("apply_residual_connection_post_layernorm", False)
    return {
        **common,
        "norm": "layer_norm",
        "word_norm": True,
        "dropout": config.take("hidden_dropout", default=0.0),
        "attention": _heads(config, kv_heads=0, alibi=True, qkv_bias=True, output_bias=True),
        "feed_forward": _plain(config, 4 * common["hidden"], "gelu"),
    }


def _mpt(config: Configuration) -> Options:
    common = _common(config, tied=True)
    config.require("no_bias", True)
    inner = Configuration(config.take("attn_config", default={}), f"{config.where}: attn_config")
    for name, legal in (
        ("attn_type", "multihead_attention"),
        ("qk_ln", False),
        ("prefix_lm", False),
    ):
        inner.require(name, legal)
    if not inner.take("alibi", default=True):
        raise SpecError(f"{inner.where}: alibi = False is not understood; legal: True.")
    return {
        **common,
        "norm": "layer_norm_without_bias",
        "dropout": config.take("resid_pdrop", default=0.0),
        "word_dropout": config.take("emb_pdrop", default=0.0),
        "attention": _heads(config, kv_heads=0, alibi=True),
        "feed_forward": _plain(
            config, config.take("expansion_ratio", default=4) * common["hidden"], "gelu", bias=False
        ),
    }


def _gpt_neox(config: Configuration) -> Options:
    bias = config.take("attention_bias", default=True)
    parallel = config.take("use_parallel_residual", default=True)
    return {
        **_common(config),
        "norm": "layer_norm",
        "block": "parallel" if parallel else "pre",
        "dropout": config.take("hidden_dropout", default=0.0),
        "attention": _heads(
            config, kv_heads=0, rotary_base=_rotary(config), qkv_bias=bias, output_bias=bias
        ),
        "feed_forward": _plain(
            config, config.take("intermediate_size"), _activation(config, "gelu")
        ),
    }


def _phi(config: Configuration) -> Options:
    config.require("qk_layernorm", False)
    return {
        **_common(config),
        "norm": "layer_norm",
        "block": "parallel_one_norm",
        "logits_bias": True,
        "dropout": config.take("resid_pdrop", default=0.0),
        "word_dropout": config.take("embd_pdrop", default=0.0),
        "attention": _heads(config, rotary_base=_rotary(config), qkv_bias=True, output_bias=True),
        "feed_forward": _plain(
            config, config.take("intermediate_size"), _activation(config, "gelu_new")
        ),
    }


def _falcon(config: Configuration) -> Options:
    common = _common(config, tied=True)
    bias, heads = config.take("bias", default=False), config.take("num_attention_heads", "n_head")
    new = config.take("new_decoder_architecture", default=False)
    one = config.take("multi_query", default=True)
    keys = config.take("num_kv_heads", "n_head_kv", default=heads) if new else 1 if one else heads
    alibi = config.take("alibi", default=False)
    norms = config.take("num_ln_in_parallel_attn", default=2 if new else 1)
    parallel = {1: "parallel_one_norm", 2: "parallel"}[norms]
    width = config.take("ffn_hidden_size", default=4 * common["hidden"])
    use = _heads(config, kv_heads=keys, alibi=alibi, qkv_bias=bias, output_bias=bias)
    base, beside = _rotary(config), config.take("parallel_attn", default=True)
    return {
        **common,
        "norm": "layer_norm",
        "block": parallel if new or beside else "pre",
        "dropout": config.take("hidden_dropout", default=0.0),
        "attention": use | ({} if alibi else {"rotary_base": base}),
        "feed_forward": _plain(config, width, _activation(config, "gelu"), bias=bias),
    }


def _starcoder2(config: Configuration) -> Options:
    bias = config.take("use_bias", default=True)
    use = {"rotary_base": _rotary(config), "qkv_bias": bias, "output_bias": bias, **_window(config)}
    return {
        **_common(config, tied=True),
        "norm": "layer_norm",
        "dropout": config.take("residual_dropout", default=0.0),
        "word_dropout": config.take("embedding_dropout", default=0.0),
        "attention": _heads(config, **use),
        "feed_forward": _plain(
            config, config.take("intermediate_size"), _activation(config, "gelu"), bias=bias
        ),
    }


READERS: dict[str, Callable[[Configuration], Options]] = {
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "granite": _llama,
    "phi": _phi,
    "phi3": _phi3,
    "starcoder2": _starcoder2,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "bloom": _bloom,
    "mpt": _mpt,
    "falcon": _falcon,
}
