"""Networks with layer norms: GPT-2 and those after it."""

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.configuration import Configuration
from lib_dlhpc.importing.hugging_face.fields import (
    Options,
    activation,
    attention,
    patterned,
    rotary_base,
    sizes,
    two_products,
    windows,
)


def gpt2(config: Configuration) -> Options:
    """GPT-2."""
    config.require("add_cross_attention", False)
    common = sizes(config, tied=True)
    dropout = config.take("resid_pdrop", default=0.1)
    width = config.take("n_inner", default=4 * common["hidden"])
    return {
        **common,
        "norm": "layer_norm",
        "positions": config.take("n_positions", default=1024),
        "dropout": dropout,
        "word_dropout": config.take("embd_pdrop", default=0.1),
        "attention": attention(config, kv_heads=0, qkv_bias=True, output_bias=True),
        "feed_forward": two_products(width, activation(config, "gelu_new")),
    }


def opt(config: Configuration) -> Options:
    """OPT: two rows more in its table of positions than words."""
    common = sizes(config, tied=True)
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
        "attention": attention(config, kv_heads=0, qkv_bias=True, output_bias=True)
        | {"dropout": config.take("attention_dropout", default=0.0)},
        "feed_forward": two_products(config.take("ffn_dim"), activation(config, "relu")),
    }


def bloom(config: Configuration) -> Options:
    """BLOOM: biases by distance, and a norm of the embeddings."""
    common = sizes(config, tied=True)
    config.require("apply_residual_connection_post_layernorm", False)
    return {
        **common,
        "norm": "layer_norm",
        "word_norm": True,
        "dropout": config.take("hidden_dropout", default=0.0),
        "attention": attention(config, kv_heads=0, alibi=True, qkv_bias=True, output_bias=True),
        "feed_forward": two_products(4 * common["hidden"], "gelu"),
    }


def mpt(config: Configuration) -> Options:
    """MPT: biases by distance."""
    common = sizes(config, tied=True)
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
        "attention": attention(config, kv_heads=0, alibi=True),
        "feed_forward": two_products(
            config.take("expansion_ratio", default=4) * common["hidden"], "gelu", bias=False
        ),
    }


def gpt_neox(config: Configuration) -> Options:
    """GPT-NeoX and Pythia: attention and feed-forward network side by side."""
    bias = config.take("attention_bias", default=True)
    parallel = config.take("use_parallel_residual", default=True)
    return {
        **sizes(config),
        "norm": "layer_norm",
        "block": "parallel" if parallel else "pre",
        "dropout": config.take("hidden_dropout", default=0.0),
        "attention": attention(
            config, kv_heads=0, rotary_base=rotary_base(config), qkv_bias=bias, output_bias=bias
        ),
        "feed_forward": two_products(config.take("intermediate_size"), activation(config, "gelu")),
    }


def phi(config: Configuration) -> Options:
    """Phi-1, Phi-1.5 and Phi-2: side by side, with one norm."""
    config.require("qk_layernorm", False)
    return {
        **sizes(config),
        "norm": "layer_norm",
        "block": "parallel_one_norm",
        "logits_bias": True,
        "dropout": config.take("resid_pdrop", default=0.0),
        "word_dropout": config.take("embd_pdrop", default=0.0),
        "attention": attention(
            config, rotary_base=rotary_base(config), qkv_bias=True, output_bias=True
        ),
        "feed_forward": two_products(
            config.take("intermediate_size"), activation(config, "gelu_new")
        ),
    }


def falcon(config: Configuration) -> Options:
    """Falcon: one or a few heads of keys and values, side by side."""
    common = sizes(config, tied=True)
    bias, heads = config.take("bias", default=False), config.take("num_attention_heads", "n_head")
    new = config.take("new_decoder_architecture", default=False)
    one = config.take("multi_query", default=True)
    keys = config.take("num_kv_heads", "n_head_kv", default=heads) if new else 1 if one else heads
    alibi = config.take("alibi", default=False)
    norms = config.take("num_ln_in_parallel_attn", default=2 if new else 1)
    parallel = {1: "parallel_one_norm", 2: "parallel"}[norms]
    width = config.take("ffn_hidden_size", default=4 * common["hidden"])
    use = attention(config, kv_heads=keys, alibi=alibi, qkv_bias=bias, output_bias=bias)
    base, beside = rotary_base(config), config.take("parallel_attn", default=True)
    return {
        **common,
        "norm": "layer_norm",
        "block": parallel if new or beside else "pre",
        "dropout": config.take("hidden_dropout", default=0.0),
        "attention": use | ({} if alibi else {"rotary_base": base}),
        "feed_forward": two_products(width, activation(config, "gelu"), bias=bias),
    }


def starcoder2(config: Configuration) -> Options:
    """StarCoder2: windows, and biases everywhere."""
    bias = config.take("use_bias", default=True)
    use = {
        "rotary_base": rotary_base(config),
        "qkv_bias": bias,
        "output_bias": bias,
        **windows(config),
    }
    return {
        **sizes(config, tied=True),
        "norm": "layer_norm",
        "dropout": config.take("residual_dropout", default=0.0),
        "word_dropout": config.take("embedding_dropout", default=0.0),
        "attention": attention(config, **use),
        "feed_forward": two_products(
            config.take("intermediate_size"), activation(config, "gelu"), bias=bias
        ),
    }


def gptj(config: Configuration) -> Options:
    """GPT-J and CodeGen: side by side, with one norm; no biases in attention."""
    common = sizes(config)
    width = config.take("n_inner", default=4 * common["hidden"])
    return {
        **common,
        "norm": "layer_norm",
        "block": "parallel_one_norm",
        "logits_bias": True,
        "dropout": config.take("resid_pdrop", default=0.0),
        "word_dropout": config.take("embd_pdrop", default=0.0),
        "attention": attention(config, kv_heads=0, rotary_base=rotary_base(config)),
        "feed_forward": two_products(width, activation(config, "gelu_new")),
    }


def gpt_bigcode(config: Configuration) -> Options:
    """StarCoder and SantaCoder: GPT-2 with one head of keys and values."""
    found = gpt2(config)
    if config.take("multi_query", default=True):
        found["attention"]["kv_heads"] = 1
    return found


def cohere(config: Configuration) -> Options:
    """Command R: side by side, with one norm without bias, and gated."""
    config.require("use_qk_norm", False)
    bias = config.take("attention_bias", default=False)
    use = {"rotary_base": rotary_base(config), "qkv_bias": bias, "output_bias": bias}
    return {
        **sizes(config, tied=True),
        "norm": "layer_norm_without_bias",
        "block": "parallel_one_norm",
        "attention": attention(
            config, head_size=config.take("head_dim", default=0), **use, **windows(config)
        ),
        "feed_forward": {
            "features": config.take("intermediate_size"),
            "activation": activation(config),
        },
    }


def cohere2(config: Configuration) -> Options:
    """Command R7B and Command A: windows, but for each n-th layer."""
    patterned(config, 4)
    return cohere(config)


def stablelm(config: Configuration) -> Options:
    """StableLM: gated, with layer norms."""
    config.require("qk_layernorm", False)
    config.default(num_key_value_heads=32)
    side = config.take("use_parallel_residual", default=False)
    bias = config.take("use_qkv_bias", default=False)
    return {
        **sizes(config),
        "norm": "layer_norm",
        "block": "parallel_one_norm" if side else "pre",
        "dropout": config.take("hidden_dropout", default=0.0),
        "attention": attention(config, rotary_base=rotary_base(config), qkv_bias=bias),
        "feed_forward": {
            "features": config.take("intermediate_size"),
            "activation": activation(config),
        },
    }


def nemotron(config: Configuration) -> Options:
    """Nemotron and Minitron: two products with a squared ReLU between."""
    bias = config.take("attention_bias", default=False)
    use = {"rotary_base": rotary_base(config), "qkv_bias": bias, "output_bias": bias}
    return {
        **sizes(config),
        "norm": "layer_norm",
        "dropout": config.take("hidden_dropout", default=0.0),
        "attention": attention(config, head_size=config.take("head_dim", default=0), **use),
        "feed_forward": two_products(
            config.take("intermediate_size"),
            activation(config, "relu2"),
            bias=config.take("mlp_bias", default=False),
        ),
    }
