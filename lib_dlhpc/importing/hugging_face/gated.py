"""Llama and what differs from it in a few fields: gated feed-forward networks, rotary positions."""

from typing import Any

from lib_dlhpc.importing.configuration import Configuration
from lib_dlhpc.importing.hugging_face.fields import (
    Options,
    activation,
    attention,
    patterned,
    rotary_base,
    sizes,
    windows,
)


def llama(config: Configuration, *, clips: bool = False, **more: Any) -> Options:
    """Llama and what differs from it in sizes, biases of queries, keys and values, and windows alone.

    clips: queries, keys and values may be clipped, on which no count depends.
    """
    bias = config.take("attention_bias", default=False)
    if not clips:
        config.require("clip_qkv", 0)
    use = {
        "head_size": config.take("head_dim", default=0),
        "rotary_base": rotary_base(config),
        "qkv_bias": bias,
        "output_bias": bias,
        **windows(config),
        **more.pop("attention", {}),
    }
    return {
        **sizes(config),
        "attention": attention(config, **use),
        "feed_forward": {
            "features": config.take("intermediate_size"),
            "activation": activation(config),
            "bias": config.take("mlp_bias", default=False),
        },
        **more,
    }


def qwen2(config: Configuration) -> Options:
    """Qwen2: queries, keys and values have biases."""
    return llama(config, attention={"qkv_bias": config.take("qkv_bias", default=True)})


def qwen3(config: Configuration) -> Options:
    """Qwen3: queries and keys are normalized, head by head."""
    return llama(
        config, attention={"normed": True, "head_size": config.take("head_dim", default=128)}
    )


def gemma(config: Configuration) -> Options:
    """Gemma: the last matrix is that of the embedding."""
    config.require("use_bidirectional_attention", False)
    return llama(config) | {"tied": config.take("tie_word_embeddings", default=True)}


def gemma2(config: Configuration, every: int = 2) -> Options:
    """Gemma 2: norms before and after; each n-th layer sees all words."""
    patterned(config, every)
    return {**gemma(config), "block": "sandwich"}


def gemma3(config: Configuration) -> Options:
    """Gemma 3: as Gemma 2, with normalized queries and keys."""
    found = gemma2(config, every=6)
    found["attention"]["normed"] = True
    return found


def phi3(config: Configuration) -> Options:
    """Phi-3: Llama with dropout."""
    return {
        **llama(config),
        "dropout": config.take("resid_pdrop", default=0.0),
        "word_dropout": config.take("embd_pdrop", default=0.0),
    }


def smollm3(config: Configuration) -> Options:
    """SmolLM3: Llama with some layers without positions."""
    config.default(num_key_value_heads=4)
    return llama(config) | {"tied": config.take("tie_word_embeddings", default=True)}


def seed_oss(config: Configuration) -> Options:
    """Seed-OSS: Llama with biases of queries, keys and values, and dropout."""
    config.default(num_key_value_heads=8, head_dim=128, attention_dropout=0.1)
    bias = config.take("attention_bias", default=True)
    return llama(
        config,
        attention={
            "qkv_bias": bias,
            "output_bias": config.take("attention_out_bias", default=False),
        },
        dropout=config.take("residual_dropout", default=0.1),
    )


def ernie(config: Configuration) -> Options:
    """ERNIE 4.5: Llama in which one key says whether there are biases."""
    config.default(num_key_value_heads=2, head_dim=128)
    bias = config.take("use_bias", default=False)
    found = llama(config, attention={"qkv_bias": bias, "output_bias": bias})
    found["feed_forward"]["bias"] = bias
    return found | {"tied": config.take("tie_word_embeddings", default=True)}


def hunyuan(config: Configuration) -> Options:
    """Hunyuan: Llama with queries and keys normalized, head by head."""
    return llama(config, attention={"normed": True})


def exaone4(config: Configuration) -> Options:
    """EXAONE 4: norms after attention and feed-forward network, and of queries and keys."""
    patterned(config, 4)
    return llama(config, attention={"normed": True}, block="post")


def arcee(config: Configuration) -> Options:
    """AFM: Llama with two products in place of the gated network."""
    config.default(hidden_act="relu2")
    found = llama(config)
    return found | {"feed_forward": found["feed_forward"] | {"gated": False}}


def glm(config: Configuration) -> Options:
    """GLM-4: biases of queries, keys and values alone."""
    config.default(num_key_value_heads=2)
    bias = config.take("attention_bias", default=True)
    return llama(
        config,
        attention={
            "head_size": config.take("head_dim", default=128),
            "qkv_bias": bias,
            "output_bias": False,
        },
    )


def glm4(config: Configuration) -> Options:
    """GLM-4-0414: norms before and after attention and feed-forward network."""
    return glm(config) | {"block": "sandwich"}


def olmo(config: Configuration) -> Options:
    """OLMo: Llama with layer norms that have no weights."""
    return llama(config, clips=True, norm="layer_norm_without_weights")


def olmo2(config: Configuration) -> Options:
    """OLMo 2: norms after attention and feed-forward network, and of queries and keys over all heads."""
    return llama(config, attention={"width_normed": True}, block="post")


def olmo3(config: Configuration) -> Options:
    """OLMo 3: as OLMo 2, with windows but for each n-th layer."""
    patterned(config, 4)
    return olmo2(config)
