"""Decoders after GPT: parameters, FLOP and stored activations in closed form, and errors that help."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.networks import FAMILIES, build


def named(name):
    options = catalog.body("models", name)
    return build(options.pop("family"), options, name)


llamas = st.builds(
    lambda kv_heads, group, half, **rest: {
        "kv_heads": kv_heads,
        "heads": kv_heads * group,
        "head_size": 2 * half,
        **rest,
    },
    kv_heads=st.integers(1, 4),
    group=st.integers(1, 4),
    half=st.integers(1, 16),
    layers=st.integers(1, 3),
    hidden=st.integers(1, 300),
    feed_forward=st.integers(1, 300),
    sequence=st.integers(1, 100),
    vocabulary=st.integers(2, 5000),
    tied=st.booleans(),
    qkv_bias=st.booleans(),
)


@given(llamas)
@settings(deadline=None, max_examples=50)
def test_a_llama_in_closed_form(options):
    model = FAMILIES["llama"](**options)
    a, k, d, f = (options[name] for name in ("heads", "kv_heads", "head_size", "feed_forward"))
    layers, h, s, vocabulary = (
        options[name] for name in ("layers", "hidden", "sequence", "vocabulary")
    )
    weights = 2 * a * d * h + 2 * k * d * h + 3 * h * f
    bias = (a + 2 * k) * d * options["qkv_bias"]
    rows = vocabulary * h
    assert model.parameters == layers * (weights + bias + 2 * h) + h + rows * (2 - options["tied"])
    # All products of the matrices, and of queries with keys, of scores with values.
    assert model.forward_flop == 2 * s * (layers * weights + rows) + layers * 4 * s**2 * a * d
    for number in range(1, layers + 1):
        inside = [each for each in model.layers if each.name.startswith(f"layer{number}.")]
        stored = s * (4 * h + 2 * (a + k) * d + 3 * f) + a * s**2
        assert sum(each.stored for each in inside) == stored
        assert not any(each.mask_bytes for each in inside)


@pytest.mark.parametrize("name", ["gpt", "opt", "bloom", "mpt"])
def test_relatives_of_gpt_have_its_products(name):
    """They differ in biases, norms and positions, which do not count as FLOP."""
    options = {"layers": 3, "hidden": 24, "heads": 4, "sequence": 10, "vocabulary": 50}
    flop = build("gpt", options).forward_flop
    assert build(name, options).forward_flop == flop


def test_a_window_does_not_change_the_counts():
    options = {"layers": 2, "hidden": 16, "heads": 4, "feed_forward": 24, "vocabulary": 9}
    all_, few = build("llama", options), build("llama", {**options, "window": 4})
    assert (all_.parameters, all_.forward_flop) == (few.parameters, few.forward_flop)
    assert all_.layers != few.layers


def test_palm_adds_attention_and_feed_forward_to_the_same_sum():
    net = build("palm", {"layers": 1, "hidden": 8, "heads": 2, "head_size": 4})
    (block_sum,) = (layer for layer in net.layers if layer.kind == "add")
    assert block_sum.inputs == ("layer1.projection", "layer1.down", "words")


def test_published_sizes_of_grouped_queries():
    """Llama 3: keys and values are an eighth of what they were with a head for each (Dubey et al. 2024)."""
    sizes = {"llama3-8b": 4, "llama3-70b": 8, "llama3-405b": 16, "gemma-2b": 8}
    for name, group in sizes.items():
        attention = next(layer for layer in named(name).layers if layer.kind == "attention")
        assert attention.attributes["heads"] == group * attention.attributes["kv_heads"]


LLAMA = {"layers": 1, "hidden": 12, "heads": 4, "feed_forward": 8}


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        ("llama", {**LLAMA, "kv_heads": 3}, ["kv_heads = 3", "heads = 4"]),
        ("llama", {**LLAMA, "heads": 5}, ["heads = 5", "hidden = 12", "head_size"]),
        ("llama", LLAMA, ["rotary_base", "pairs", "3"]),
        ("llama", {**LLAMA, "activation": "relu"}, ["'relu'", "silu, gelu", "'gelu'"]),
        ("llama", {**LLAMA, "feed_forward": 0}, ["feed_forward", "at least 1"]),
        ("opt", {"layers": 1, "hidden": 8, "heads": 2, "positions": 9}, ["positions = 9", "2048"]),
        (
            "sequential",
            {"input": [4, 6], "layers": [{"kind": "attention", "heads": 2, "window": 2}]},
            ["window = 2", "causal"],
        ),
        (
            "sequential",
            {"input": [4, 7], "layers": [{"kind": "attention", "heads": 2, "kv_heads": 1}]},
            ["7 features", "2 heads of queries and 1"],
        ),
        (
            "sequential",
            {"input": [4], "layers": [{"kind": "glu", "inputs": ["input"]}]},
            ["two inputs", "(4,)"],
        ),
    ],
)
def test_errors_name_the_value_and_what_is_legal(family, options, words):
    with pytest.raises(SpecError) as error:
        build(family, options)
    for word in words:
        assert word in str(error.value)
