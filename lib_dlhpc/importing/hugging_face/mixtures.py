"""Mixtures of experts."""

from typing import Any

from lib_dlhpc.importing.configuration import Configuration
from lib_dlhpc.importing.hugging_face.fields import Options, activation, patterned
from lib_dlhpc.importing.hugging_face.gated import llama, olmo2, qwen2, qwen3
from lib_dlhpc.layers.gated_experts import CLAMPED, LIMIT, SHARPNESS


def mixture(config: Configuration, experts: str, features: str, **more: Any) -> Options:
    """Return the experts, of which each layer has a mixture."""
    config.require("mlp_only_layers", [])
    config.require("decoder_sparse_step", 1)
    return {
        "experts": config.take(experts),
        "chosen": config.take("num_experts_per_tok", "experts_per_token"),
        "features": config.take(features),
        "activation": activation(config),
        **more,
    }


def mixtral(config: Configuration) -> Options:
    """Mixtral and Granite 3: experts in place of the feed-forward network."""
    found = llama(config)
    return {**found, "experts": mixture(config, "num_local_experts", "intermediate_size")}


def qwen2_moe(config: Configuration) -> Options:
    """Qwen1.5-MoE and Qwen2-MoE: with a shared expert that a gate scales."""
    shared = config.take("shared_expert_intermediate_size")
    found = mixture(config, "num_experts", "moe_intermediate_size", shared=shared, shared_gate=True)
    return {**qwen2(config), "experts": found}


def qwen3_moe(config: Configuration) -> Options:
    """Qwen3-MoE."""
    return {**qwen3(config), "experts": mixture(config, "num_experts", "moe_intermediate_size")}


def deepseek_v2(config: Configuration) -> Options:
    """Groups limit a token's experts with one method of routing alone."""
    config.require("topk_method", "greedy", "group_limited_greedy")
    limited = config.take("topk_method", default="greedy") != "greedy"
    groups, some = config.take("n_group", default=1), config.take("topk_group", default=0)
    return deepseek(config, groups=groups if limited else 1, chosen_groups=some if limited else 0)


def deepseek_v3(config: Configuration) -> Options:
    """Groups are those of transformers where the file has none."""
    config.require("topk_method", "noaux_tc")
    groups, some = config.take("n_group", default=8), config.take("topk_group", default=4)
    return deepseek(config, groups=groups, chosen_groups=some)


def deepseek_v32(config: Configuration) -> Options:
    """DeepSeek-V3.2: DeepSeek-V3 whose queries attend to keys that an indexer chooses."""
    config.default(index_topk=2048, index_n_heads=64, index_head_dim=128)
    found = deepseek_v3(config)
    found["attention"] |= {
        "chosen": config.take("index_topk"),
        "index_heads": config.take("index_n_heads"),
        "index_size": config.take("index_head_dim"),
    }
    return found


def deepseek(config: Configuration, groups: int, chosen_groups: int) -> Options:
    """DeepSeek: latent attention, shared experts, and the first layers without experts."""
    config.require("attention_bias", False)
    config.require("moe_layer_freq", 1)
    found = llama(config)
    features = config.take("moe_intermediate_size")
    more = {
        "dense": config.take("first_k_dense_replace", default=0),
        "shared": features * config.take("n_shared_experts", default=0),
    }
    if groups > 1:
        more |= {"groups": groups, "chosen_groups": chosen_groups}
    found["experts"] = mixture(config, "n_routed_experts", "moe_intermediate_size", **more)
    found["attention"] = {
        "heads": config.take("num_attention_heads"),
        "latent": config.take("kv_lora_rank"),
        "queries": config.take("q_lora_rank", default=0),
        "plain": config.take("qk_nope_head_dim"),
        "rotated": config.take("qk_rope_head_dim"),
        "values": config.take("v_head_dim"),
    }
    return found


def grouped(config: Configuration, **more: Any) -> Options:
    """GLM-4.5 and dots.llm1: experts as in DeepSeek-V3, attention of grouped heads."""
    features = config.take("moe_intermediate_size")
    groups, some = config.take("n_group", default=1), config.take("topk_group", default=1)
    experts = {
        "dense": config.take("first_k_dense_replace", default=0),
        "shared": features * config.take("n_shared_experts", default=0),
    }
    if groups > 1:
        experts |= {"groups": groups, "chosen_groups": some}
    found = llama(config, attention=more)
    return found | {
        "experts": mixture(config, "n_routed_experts", "moe_intermediate_size", **experts)
    }


def dots1(config: Configuration) -> Options:
    """dots.llm1: queries and keys are normalized, head by head."""
    config.require("moe_layer_freq", 1)
    return grouped(config, normed=True)


def glm4_moe(config: Configuration) -> Options:
    """GLM-4.5: biases of queries, keys and values alone."""
    config.default(num_key_value_heads=8, first_k_dense_replace=1, n_shared_experts=1)
    bias = config.take("attention_bias", default=False)
    return grouped(
        config,
        normed=config.take("use_qk_norm", default=False),
        head_size=config.take("head_dim", default=128),
        qkv_bias=bias,
        output_bias=False,
    )


def olmoe(config: Configuration) -> Options:
    """OLMoE: queries and keys are normalized over all heads."""
    found = llama(config, clips=True, attention={"width_normed": True})
    return {**found, "experts": mixture(config, "num_experts", "intermediate_size")}


def flex_olmo(config: Configuration) -> Options:
    """FlexOlmo: OLMo 2 with experts."""
    return {**olmo2(config), "experts": mixture(config, "num_experts", "intermediate_size")}


def gpt_oss(config: Configuration) -> Options:
    """GPT-OSS: sinks of attention, windows in every second layer, biases everywhere, clamped experts."""
    config.default(num_key_value_heads=8, head_dim=64, attention_bias=True, sliding_window=128)
    patterned(config, 2)
    config.require("hidden_act", "silu")
    config.require("swiglu_limit", LIMIT)
    config.require("swiglu_alpha", SHARPNESS)
    experts = mixture(config, "num_local_experts", "intermediate_size", bias=True)
    found = llama(config, attention={"sinks": True})
    return {**found, "experts": experts | {"activation": CLAMPED}}
