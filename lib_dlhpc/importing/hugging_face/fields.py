"""What the fields of most configurations have in common."""

from collections.abc import Mapping
from typing import Any

from lib_dlhpc.errors import SpecError
from lib_dlhpc.importing.configuration import Configuration

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "relu2": "relu",  # squared: in the same kernel
    **dict.fromkeys(("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu"),
}
Options = dict[str, Any]


def sizes(config: Configuration, tied: bool = False) -> Options:
    """Return layers, widths, and whether the last matrix is that of the embedding; tied: by default."""
    return {
        "layers": config.take("num_hidden_layers", "n_layer", "n_layers"),
        "hidden": config.take("hidden_size", "n_embd", "d_model", "n_embed"),
        "vocabulary": config.take("vocab_size"),
        "tied": config.take("tie_word_embeddings", default=tied),
    }


def attention(config: Configuration, **more: Any) -> Options:
    """Return heads and dropout, and those of the other options that are not zero."""
    heads = config.take("num_attention_heads", "n_head", "n_heads")
    found = {"heads": heads, "dropout": config.take("attention_dropout", "attn_pdrop", default=0.0)}
    if "kv_heads" not in more:
        found["kv_heads"] = config.take("num_key_value_heads", default=heads)
    return found | {key: value for key, value in more.items() if value}


def rotary_base(config: Configuration) -> int:
    """Return the base of the angles of positions; extensions to longer sequences stay a note."""
    inner = config.table.get("rope_parameters", {})
    base = inner.get("rope_theta", 10000) if isinstance(inner, Mapping) else 10000
    return int(config.take("rope_theta", "rotary_emb_base", default=base))


def activation(config: Configuration, default: str = "silu") -> str:
    """Return the activation by its name here. Raises SpecError for one that is not known."""
    name = config.take(
        "hidden_act", "hidden_activation", "activation_function", "activation", default=default
    )
    if name not in ACTIVATIONS:
        raise SpecError(
            f"{config.where}: activation {name!r} is not understood; legal: {', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[name]


def windows(config: Configuration) -> Options:
    """Return a window of all layers, or of all but each n-th."""
    window = config.take("sliding_window", default=0)
    use = config.take("use_sliding_window", default=True)
    first, layers = (
        config.take("max_window_layers", default=0),
        config.take("num_hidden_layers", default=0),
    )
    windowed = window and use and not 0 < layers <= first
    if windowed and first and "layer_types" not in config.table:
        raise SpecError(
            f"{config.where}: max_window_layers = {first!r} is not understood where only later layers have a window;"
            f" legal: 0, {layers}."
        )
    types = config.take("layer_types", default=["sliding_attention"] if windowed else [])
    full = [kind == "full_attention" for kind in types]
    every = full.index(True) + 1 if True in full else 0
    expected = [bool(every) and number % every == 0 for number in range(1, len(types) + 1)]
    if set(types) - {"full_attention", "sliding_attention"} or full != expected:
        raise SpecError(
            f"{config.where}: layer_types = {types!r} is not understood; legal: sliding_attention, with each n-th"
            " layer full_attention."
        )
    return {"window": window, "full_every": every} if every != 1 and types else {}


def patterned(config: Configuration, every: int) -> None:
    """Write down which layers see all words: each n-th, where the file has no list; every: where it has no number."""
    config.default(sliding_window=4096)
    pattern = config.take("sliding_window_pattern", default=every)
    if isinstance(pattern, int) and pattern > 0:
        pattern = "L" * (pattern - 1) + "G"
    if not isinstance(pattern, str) or not pattern or set(pattern) - set("LG"):
        raise SpecError(
            f"{config.where}: sliding_window_pattern = {pattern!r} is not understood; legal: a number of layers, or"
            " letters L (a window) and G (all words)."
        )
    names = {"L": "sliding_attention", "G": "full_attention"}
    layers = range(config.take("num_hidden_layers"))
    kinds = [names[pattern[number % len(pattern)]] for number in layers]
    config.table.setdefault("layer_types", kinds)


def two_products(features: int, function: str, *, bias: bool = True) -> Options:
    """Return a feed-forward network of two products."""
    return {"features": features, "activation": function, "gated": False, "bias": bias}
