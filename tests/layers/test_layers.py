"""Laws of layers: derivatives equal differences, results equal plain formulas, memory changes nothing."""

import pickle
import sys
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from layer_references import (
    assert_layer,
    attention,
    bench,
    convolution,
    experts,
    gelu,
    inputs_of,
    lstm,
    model_of,
    normalized,
    outside,
    pool,
)

from lib_dlhpc.layers import KINDS, Context, Layer, batch_norm, conv, max_pool
from lib_dlhpc.layers.base import columns, kind, products
from lib_dlhpc.layers.base.saved import unbuffered
from lib_dlhpc.layers.fused_attention import fused

WORDS = {"kind": "embedding", "vocabulary": 7, "features": 4, "name": "words"}
TWO = ({"kind": "relu", "name": "a"}, {"kind": "tanh", "name": "b", "after": "input"})


def experts_of(positions, width, count, chosen, capacity=0.0, kind="experts", **more):
    """A layer of experts that reads positions, and scores of them."""
    options = {"experts": count, "chosen": chosen, "features": 3, "capacity": capacity, **more}
    return model_of(
        (positions, width),
        {"kind": "dense", "features": count, "name": "router"},
        {"kind": kind, "inputs": ["input", "router"], **options},
    )


# name: a network whose last layer is the one to look at
CASES = {
    "add": model_of((5,), *TWO, {"kind": "add", "inputs": ["a", "b"]}),
    "add of one": model_of((5,), TWO[0], {"kind": "add", "inputs": ["a"]}),
    "add of three": model_of((2, 3, 3), *TWO, {"kind": "add", "inputs": ["a", "b", "a"]}),
    "attention": model_of((5, 12), {"kind": "attention", "heads": 2}),
    "attention, causal": model_of((4, 18), {"kind": "attention", "heads": 3, "causal": True}),
    "attention, dropped": model_of((3, 6), {"kind": "attention", "heads": 1, "dropout": 0.4}),
    "attention, grouped": model_of(
        (4, 16), {"kind": "attention", "heads": 4, "kv_heads": 2, "causal": True}
    ),
    "attention, multi-query": model_of((3, 10), {"kind": "attention", "heads": 3, "kv_heads": 1}),
    "attention, window": model_of(
        (6, 12), {"kind": "attention", "heads": 2, "causal": True, "window": 3}
    ),
    "attention, rotary": model_of((5, 24), {"kind": "attention", "heads": 2, "rotary_base": 100}),
    "attention, alibi": model_of(
        (5, 18), {"kind": "attention", "heads": 3, "causal": True, "alibi": True}
    ),
    "attention, all": model_of(
        (5, 32),
        {
            "kind": "attention",
            "heads": 4,
            "kv_heads": 2,
            "causal": True,
            "window": 2,
            "rotary_base": 10,
            "dropout": 0.3,
        },
    ),
    "avg_pool": model_of((2, 5, 7), {"kind": "avg_pool", "kernel": 2}),
    "avg_pool, 3-D": model_of(
        (2, 5, 3, 4), {"kind": "avg_pool", "kernel": 3, "stride": 2, "padding": 1}
    ),
    "batch_norm": model_of((5,), {"kind": "batch_norm"}),
    "batch_norm, image": model_of((3, 2, 5), {"kind": "batch_norm"}),
    "batch_norm, volume": model_of((2, 3, 1, 2), {"kind": "batch_norm"}),
    "concat": model_of((3,), *TWO, {"kind": "concat", "inputs": ["a", "b"]}),
    "concat, sequence": model_of((3, 2), *TWO, {"kind": "concat", "inputs": ["b", "a"]}),
    "concat, image": model_of((2, 3, 2), *TWO, {"kind": "concat", "inputs": ["a", "b", "a"]}),
    "conv": model_of((3, 5, 7), {"kind": "conv", "channels": 4, "kernel": 3, "padding": 1}),
    "conv, strides": model_of(
        (2, 7, 6),
        {"kind": "conv", "channels": 3, "kernel": [3, 2], "stride": [2, 3], "padding": [1, 0]},
    ),
    "conv, wide": model_of(
        (1, 3, 4),
        {"kind": "conv", "channels": 2, "kernel": [1, 5], "padding": [0, 2], "bias": False},
    ),
    "conv, groups": model_of(
        (4, 4, 5), {"kind": "conv", "channels": 6, "kernel": 3, "padding": 1, "groups": 2}
    ),
    "conv, depthwise": model_of(
        (3, 5, 4), {"kind": "conv", "channels": 3, "kernel": 3, "stride": 2, "groups": 3}
    ),
    "conv, 3-D": model_of(
        (2, 3, 5, 4),
        {"kind": "conv", "channels": 3, "kernel": [3, 2, 4], "stride": [2, 1, 2], "padding": 1},
    ),
    "conv, pointwise": model_of((3, 4, 5), {"kind": "conv", "channels": 2, "kernel": 1}),
    "conv, pointwise, groups": model_of(
        (4, 3, 5), {"kind": "conv", "channels": 6, "kernel": 1, "groups": 2, "bias": False}
    ),
    "conv, apart": model_of((3, 5, 7), {"kind": "conv", "channels": 2, "kernel": 1, "stride": 2}),
    "dense": model_of((5,), {"kind": "dense", "features": 3}),
    "dense, sequence": model_of((4, 5), {"kind": "dense", "features": 3, "bias": False}),
    "dense, tied": model_of((3,), WORDS, {"kind": "dense", "features": 7, "tied": "words"}),
    "dropout": model_of((5,), {"kind": "dropout", "rate": 0.3}),
    "dropout, image": model_of((2, 3, 4), {"kind": "dropout", "rate": 0.5}),
    "dropout, none": model_of((4,), {"kind": "dropout", "rate": 0.0}),
    "embedding": model_of((6,), WORDS),
    "experts": experts_of(5, 4, 3, 2),
    "experts, one": experts_of(3, 2, 4, 1),
    "experts, limited": experts_of(7, 3, 4, 2, 0.8),
    "experts, one limited": experts_of(6, 2, 3, 1, 0.5),
    "experts, all": experts_of(2, 3, 2, 2),
    "gated_experts": experts_of(5, 4, 3, 2, kind="gated_experts"),
    "gated_experts, limited": experts_of(6, 2, 3, 1, 0.5, kind="gated_experts"),
    "squared_relu_experts": experts_of(5, 4, 3, 2, kind="squared_relu_experts"),
    "squared_relu_experts, limited": experts_of(6, 2, 3, 1, 0.5, kind="squared_relu_experts"),
    "gated_experts, biased": experts_of(5, 4, 3, 2, kind="gated_experts", bias=True),
    # So wide that many values are beyond the limits.
    "gated_experts, clamped": experts_of(
        4, 30, 3, 2, kind="gated_experts", bias=True, activation="clamped"
    ),
    "width_norm": model_of((3, 12), {"kind": "width_norm", "heads": 2}),
    "width_norm, grouped": model_of((2, 16), {"kind": "width_norm", "heads": 4, "kv_heads": 2}),
    "head_norm": model_of((3, 12), {"kind": "head_norm", "heads": 2}),
    "head_norm, grouped": model_of((2, 16), {"kind": "head_norm", "heads": 4, "kv_heads": 2}),
    "multiply": model_of((5,), *TWO, {"kind": "multiply", "inputs": ["a", "b"]}),
    "multiply, gate": model_of(
        (4, 3),
        {"kind": "dense", "features": 1, "name": "gate"},
        {"kind": "multiply", "inputs": ["input", "gate"]},
    ),
    "tokens": model_of((3, 2, 4), {"kind": "tokens"}),
    "tokens, learned": model_of((2, 3, 2), {"kind": "tokens", "learned": 2}),
    "flatten": model_of((4, 3), {"kind": "flatten"}),
    "flatten, volume": model_of((2, 3, 2, 3), {"kind": "flatten"}),
    "fused_attention": model_of((5, 12), {"kind": "fused_attention", "heads": 2}),
    "fused_attention, all": model_of(
        (5, 32),
        {
            "kind": "fused_attention",
            "heads": 4,
            "kv_heads": 2,
            "causal": True,
            "window": 2,
            "rotary_base": 10,
            "dropout": 0.3,
        },
    ),
    "gelu": model_of((4, 5), {"kind": "gelu"}),
    "glu": model_of((4, 5), *TWO, {"kind": "glu", "inputs": ["a", "b"]}),
    "glu, gelu": model_of(
        (7,), *TWO, {"kind": "glu", "activation": "gelu", "inputs": ["b", "input"]}
    ),
    "global_avg_pool": model_of((3, 2, 5), {"kind": "global_avg_pool"}),
    "global_avg_pool, 3-D": model_of((2, 3, 2, 2), {"kind": "global_avg_pool"}),
    "layer_norm": model_of((5,), {"kind": "layer_norm"}),
    "layer_norm, sequence": model_of((3, 4), {"kind": "layer_norm"}),
    "layer_norm, no bias": model_of((3, 4), {"kind": "layer_norm", "bias": False}),
    "layer_norm, none learned": model_of(
        (3, 4), {"kind": "layer_norm", "bias": False, "scale": False}
    ),
    "leaky_relu": model_of((3, 4, 2), {"kind": "leaky_relu", "slope": 0.1}),
    "leaky_relu, flat": model_of((7,), {"kind": "leaky_relu", "slope": 0.0}),
    "lstm": model_of((4, 3), {"kind": "lstm", "hidden": 2}),
    "lstm, last step": model_of((3, 2), {"kind": "lstm", "hidden": 3, "sequences": False}),
    "max_pool": model_of((2, 5, 7), {"kind": "max_pool", "kernel": 2}),
    "max_pool, overlap": model_of(
        (2, 7, 5), {"kind": "max_pool", "kernel": [3, 2], "stride": [2, 1], "padding": [1, 1]}
    ),
    "max_pool, side by side": model_of((2, 4, 6, 3), {"kind": "max_pool", "kernel": [2, 3, 1]}),
    "max_pool, 3-D": model_of((2, 4, 3, 5), {"kind": "max_pool", "kernel": 2, "stride": 1}),
    "position_embedding": model_of((3, 4), {"kind": "position_embedding", "positions": 5}),
    "relu": model_of((3, 4, 2), {"kind": "relu"}),
    "rms_norm": model_of((5,), {"kind": "rms_norm"}),
    "rms_norm, sequence": model_of((3, 4), {"kind": "rms_norm"}),
    "sigmoid": model_of((6,), {"kind": "sigmoid"}),
    "silu": model_of((4, 5), {"kind": "silu"}),
    "tanh": model_of((3, 5), {"kind": "tanh"}),
}

every_case = pytest.mark.parametrize("name", CASES)


def run(model, batch, dtype=np.float64, **flags):
    inputs, one = inputs_of(model, batch, dtype), bench(model, dtype, **flags)
    shape = one.forward(inputs).shape
    dy = np.random.default_rng(11).normal(size=shape).astype(dtype)
    return one.run(inputs, dy)


def assert_same(found, expected, **tolerance):
    for (y, dx, gradients), (y2, dx2, gradients2) in ((found, expected),):
        np.testing.assert_allclose(y, y2, **tolerance)
        for part, part2 in zip(dx, dx2, strict=True):
            if part is not None and part2 is not None:
                np.testing.assert_allclose(part, part2, **tolerance)
        assert gradients.keys() == gradients2.keys()
        for key in gradients:
            np.testing.assert_allclose(gradients[key], gradients2[key], **tolerance)


def test_the_cases_cover_every_kind_and_each_is_described():
    trained = {kind for kind in KINDS if hasattr(KINDS[kind], "forward")}
    assert {model.layers[-1].kind for model in CASES.values()} == trained - {"receive"}
    assert all(kind.__doc__ for kind in KINDS.values())


@pytest.mark.parametrize("batch", [1, 3])
@every_case
def test_gradients_equal_differences(name, batch):
    assert_layer(CASES[name], batch)


@every_case
def test_shapes_and_weights_are_those_of_the_model(name):
    model = CASES[name]
    noun, one = model.layers[-1], bench(model)
    y, _, _ = run(model, 2)
    assert outside(y).shape == (2, *noun.output_shape)
    assert sum(prod(s) for s in getattr(one.layer, "shapes", {}).values()) == noun.parameters


@pytest.mark.parametrize("wants_dx", [True, False])
@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].layers[-1].traits.splits_backward])
def test_backward_in_two_parts_is_backward(name, wants_dx):
    """Input gradients first, without the input, which may not be there; then weight gradients; dy unchanged.

    Layers with operands of their own need dy no more by then, nor any weights.
    """
    model = CASES[name]
    inputs, one = inputs_of(model, 3), bench(model, wants_dx=wants_dx)
    dy = np.random.default_rng(2).normal(size=one.forward(inputs).shape)
    saved, given, own = one.saved, dy.copy(), one.noun.traits.own_operands
    expected = {each: np.zeros_like(weight) for each, weight in one.weights.items()}
    found = {each: np.zeros_like(weight) for each, weight in one.weights.items()}
    dx = one.layer.backward(one.weights, expected, saved, dy.copy())
    one.forward(inputs)
    x = saved.values.pop("x", None)
    apart = one.layer.input_gradient(one.weights, saved, given)
    saved.values["x"] = x
    one.layer.weight_gradient(found, saved, None if own else given)
    assert np.array_equal(given, dy)
    assert (dx is None) == (apart is None) == (not wants_dx and not own)
    if dx is not None:
        for one_dx, other in zip(as_tuple(dx), as_tuple(apart), strict=True):
            np.testing.assert_array_equal(other, one_dx)
    for each in expected:
        np.testing.assert_array_equal(found[each], expected[each])


def as_tuple(gradients):
    return gradients if isinstance(gradients, tuple) else (gradients,)


@every_case
def test_gradients_of_other_readers_are_added_to_where_not_all_inputs_are_read(name):
    one, inputs = bench(CASES[name]), inputs_of(CASES[name], 3)
    dy = np.random.default_rng(2).normal(size=one.forward(inputs).shape)
    _, (dx, *_), _ = one.run(inputs, dy)
    one.forward(inputs)
    others = None if dx is None else np.full_like(dx, 5.0)
    one.saved.others = others
    _, (found, *_), _ = one.run(inputs, dy)
    if name in ("conv, strides", "conv, depthwise", "conv, 3-D", "conv, apart"):
        assert found is others
        np.testing.assert_allclose(found, dx + 5, rtol=0, atol=1e-14 * (5 + np.abs(dx).max()))
    else:
        np.testing.assert_array_equal(found, dx)


@every_case
def test_in_place_gives_the_same(name):
    assert_same(run(CASES[name], 3, inplace=True), run(CASES[name], 3), rtol=0)


@every_case
def test_weight_gradients_are_the_same_without_input_gradients(name):
    assert_same(run(CASES[name], 3, wants_dx=False), run(CASES[name], 3), rtol=1e-14)


@every_case
def test_a_smaller_batch_after_a_larger_one(name):
    model = CASES[name]
    inputs, one, fresh = inputs_of(model, 2), bench(model), bench(model)
    larger = inputs_of(model, 5)
    dy = np.random.default_rng(2).normal(size=one.forward(larger).shape)
    one.run(larger, dy)
    dy = np.random.default_rng(3).normal(size=fresh.forward(inputs).shape)
    assert_same(one.run(inputs, dy), fresh.run(inputs, dy), rtol=0)


@every_case
def test_float32_stays_float32_and_near_float64(name):
    found, expected = run(CASES[name], 3, np.float32), run(CASES[name], 3)
    y, dx, gradients = found
    for array in (y, *dx, *gradients.values()):
        assert array is None or array.dtype == np.float32
    assert_same(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("error")
@every_case
def test_a_rank_without_samples_has_gradients_of_zero(name):
    y, _, gradients = run(CASES[name], 0)
    assert y.size == 0
    assert all(np.all(gradient == 0) for gradient in gradients.values())


# -- against plain formulas -------------------------------------------------------------------------

named = lambda kind: pytest.mark.parametrize("name", [n for n in CASES if n.startswith(kind)])  # noqa: E731


def forward(name, batch=3):
    """Return a case's layer, its input and its output with the samples first, its weights."""
    one, inputs = bench(CASES[name]), inputs_of(CASES[name], batch)
    return one.noun, outside(inputs[0]), outside(one.forward(inputs)), one.weights


@named("conv")
def test_convolution(name):
    noun, x, y, weights = forward(name)
    window = [noun.attributes[key] for key in ("stride", "padding", "groups")]
    expected = convolution(x, weights["weight"], weights.get("bias"), *window)
    np.testing.assert_allclose(y, expected, atol=1e-12)


@pytest.mark.parametrize("cache", [0, 100, 1500, 10**9])
@named("conv")
def test_convolution_in_blocks_of_any_size(name, cache, monkeypatch):
    expected = run(CASES[name], 2)
    monkeypatch.setattr(columns, "CACHE", cache)
    monkeypatch.setattr(columns, "WIDE", 1)
    assert_same(run(CASES[name], 2), expected, atol=1e-12)


@pytest.mark.parametrize("multiplications", [1, 200, 1000])
@named("conv")
def test_convolution_in_products_of_any_size(name, multiplications, monkeypatch):
    expected = run(CASES[name], 2)
    monkeypatch.setattr(products, "UNPACKED", multiplications)
    monkeypatch.setattr(products, "FEW", 1)
    assert_same(run(CASES[name], 2), expected, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("max_pool", "avg_pool"))])
def test_pools(name):
    noun, x, y, _ = forward(name)
    window = [noun.attributes[key] for key in ("kernel", "stride", "padding")]
    expected = pool(x, *window, noun.output_shape[1:], noun.kind == "max_pool")
    np.testing.assert_allclose(y, expected, rtol=1e-14)


@pytest.mark.parametrize(
    "name", [n for n in CASES if n.startswith("attention") and not CASES[n].layers[-1].mask_bytes]
)
def test_attention(name):
    noun, x, y, _ = forward(name)
    options = {key: value for key, value in noun.attributes.items() if key != "dropout"}
    np.testing.assert_allclose(y, attention(x, **options), rtol=1e-12)


@pytest.mark.parametrize("name", ["attention", "attention, all"])
def test_fused_attention_is_attention(name):
    """In output and gradients, with no array of the size of the scores between the passes."""
    apart = CASES[name].layers[-1]
    whole = replace(CASES[name], layers=(fused(apart, True),))
    assert_same(run(whole, 3), run(CASES[name], 3), rtol=1e-11, atol=1e-13)
    one = bench(whole)
    one.forward(inputs_of(whole, 3))
    assert one.saved.values["rows"].size == 3 * apart.attributes["heads"] * 5
    assert all(each.ndim == 3 for key, each in one.saved.values.items() if key != "rows")


@pytest.mark.parametrize("name", ["attention, dropped", "attention, all"])
def test_attention_is_fused_and_back(name):
    apart = CASES[name].layers[-1]
    whole = fused(apart, True)
    assert fused(whole, False) == apart
    assert fused(whole, True) == whole
    described = CASES[f"fused_{name}"].layers[-1] if name == "attention, all" else whole
    assert replace(described, name=whole.name) == whole
    positions, features = apart.output_shape
    assert (whole.stored, whole.mask_bytes) == (
        positions * features,
        4 * apart.attributes["heads"] * positions,
    )
    assert KINDS["fused_attention"].repeated_flop(whole) == whole.forward_flop / 2


@named(("experts", "gated_experts", "squared_relu_experts"))
def test_experts(name):
    """Outputs and dropped choices are those of a loop over positions and choices."""
    one, (x, scores) = bench(CASES[name]), inputs_of(CASES[name], 3)
    options = one.noun.attributes
    clamped = options.get("activation") == "clamped"
    how = (options["chosen"], options["capacity"], clamped)
    y, load, dropped = experts(x, scores, one.weights, *how)
    np.testing.assert_allclose(one.forward([x, scores]), y, rtol=1e-12, atol=1e-14)
    assert one.layer.load.chosen.tolist() == load and one.layer.load.dropped == dropped
    assert (dropped > 0) == ("limited" in name)


@named(("experts", "gated_experts", "squared_relu_experts"))
def test_experts_that_have_no_position_get_no_gradient(name):
    one, (x, scores) = bench(CASES[name]), inputs_of(CASES[name], 2)
    scores[..., 0] = -50.0
    chosen = one.noun.attributes["chosen"] < one.noun.attributes["experts"]
    _, _, gradients = one.run([x, scores], np.ones_like(x))
    for gradient in gradients.values():
        assert np.all(gradient[0] == 0) == chosen


@pytest.mark.parametrize("kind", ["experts", "gated_experts", "squared_relu_experts"])
@pytest.mark.parametrize(
    ("several", "chosen", "features", "samples"), [(4, 2, 640, 8), (2, 1, 40, 24)]
)
def test_backward_of_experts_holds_what_is_counted(kind, several, chosen, features, samples):
    """Beside what forward has stored; no function of all rows, nor a product, makes copies of its own."""
    router = {"kind": "dense", "features": several, "name": "router"}
    options = {"experts": several, "chosen": chosen, "features": features}
    options["inputs"] = ["input", "router"]
    model = model_of((256, 160), router, {"kind": kind, **options})
    one, inputs = bench(model), inputs_of(model, samples)
    dy = np.ones_like(one.forward(inputs))
    gradients = {name: np.empty_like(weight) for name, weight in one.weights.items()}
    tracemalloc.start()
    one.layer.backward(one.weights, gradients, one.saved, dy)
    peak = tracemalloc.get_traced_memory()[1] + dy.nbytes
    tracemalloc.stop()
    counted = KINDS[kind].working_elements(one.noun) * dy.nbytes / dy[0].size
    assert peak == pytest.approx(counted, rel=0.1)


def test_an_evaluation_and_a_recomputed_pass_count_no_load():
    one, inputs = bench(CASES["experts"]), inputs_of(CASES["experts"], 2)
    one.saved.context.recomputing = True
    one.forward(inputs)
    one.saved.context.recomputing, one.saved.context.training = False, False
    one.forward(inputs)
    assert one.layer.load.chosen.sum() == 0


@named("head_norm")
def test_head_norm(name):
    """Heads of queries, then of keys, are normalized; values pass."""
    noun, x, y, weights = forward(name)
    heads, kv_heads = noun.attributes["heads"], noun.attributes["kv_heads"]
    each = x.reshape(*x.shape[:2], heads + 2 * kv_heads, -1).copy()
    for head in range(heads + kv_heads):
        root = np.sqrt(np.mean(each[:, :, head] ** 2, axis=-1, keepdims=True) + 1e-5)
        each[:, :, head] *= weights["queries" if head < heads else "keys"] / root
    np.testing.assert_allclose(y, each.reshape(x.shape), rtol=1e-12)


@named("width_norm")
def test_width_norm(name):
    """All queries of a position are normalized together, and all its keys; values pass."""
    noun, x, y, weights = forward(name)
    heads, kv_heads = noun.attributes["heads"], noun.attributes["kv_heads"]
    size = x.shape[-1] // (heads + 2 * kv_heads)
    queries, keys, values = np.split(x, [heads * size, (heads + kv_heads) * size], axis=-1)
    for part, scale in ((queries, weights["queries"]), (keys, weights["keys"])):
        part *= scale / np.sqrt(np.mean(part**2, axis=-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, np.concatenate([queries, keys, values], -1), rtol=1e-12)


@named("lstm")
def test_lstm(name):
    noun, x, y, weights = forward(name)
    np.testing.assert_allclose(
        y, lstm(x, **weights, sequences=noun.attributes["sequences"]), rtol=1e-12
    )


@named("batch_norm")
def test_batch_norm(name):
    _, x, y, weights = forward(name)
    scale, shift = (w.reshape(-1, *(1,) * (x.ndim - 2)) for w in weights.values())
    axes = (0, *range(2, x.ndim))
    np.testing.assert_allclose(y, normalized(x, axes, scale, shift), rtol=1e-10)


@named("batch_norm")
def test_batch_norm_evaluates_with_running_statistics_that_approach_those_of_the_batch(name):
    one, inputs = bench(CASES[name]), inputs_of(CASES[name], 3)
    x = outside(inputs[0])
    axes, count = (0, *range(2, x.ndim)), x.size // x.shape[1]
    for steps in range(3):
        left = (1 - batch_norm.MOMENTUM) ** steps
        expected = (1 - left) * x.var(axis=axes, ddof=1) + left
        np.testing.assert_allclose(one.layer.running["variance"], expected)
        np.testing.assert_allclose(one.layer.running["mean"], (1 - left) * x.mean(axis=axes))
        one.forward(inputs)
    assert count > 1
    one.saved.context.training = False
    mean, variance, scale, shift = (
        w.reshape(-1, *(1,) * (x.ndim - 2))
        for w in (*one.layer.running.values(), *one.weights.values())
    )
    expected = (x - mean) / np.sqrt(variance + batch_norm.EPSILON) * scale + shift
    np.testing.assert_allclose(outside(one.forward(inputs)), expected)


@named("batch_norm")
def test_batch_norm_without_samples_leaves_its_running_statistics(name):
    one = bench(CASES[name])
    one.forward(inputs_of(CASES[name], 3))
    before = {key: values.copy() for key, values in one.layer.running.items()}
    one.forward(inputs_of(CASES[name], 0))
    for key, values in one.layer.running.items():
        np.testing.assert_array_equal(values, before[key])


def test_the_size_of_buffers_is_restored():
    before = np.getbufsize()
    with pytest.raises(ZeroDivisionError), unbuffered():
        assert np.getbufsize() < before
        1 / 0  # noqa: B018
    assert np.getbufsize() == before


@named("layer_norm")
def test_layer_norm(name):
    _, x, y, weights = forward(name)
    expected = normalized(x, -1, **{"scale": 1, "shift": 0, **weights})
    np.testing.assert_allclose(y, expected, rtol=1e-10)


@named("rms_norm")
def test_rms_norm(name):
    _, x, y, weights = forward(name)
    root = np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, x / root * weights["scale"], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "function"), [("glu", lambda x: x / (1 + np.exp(-x))), ("glu, gelu", gelu)]
)
def test_gated_linear_units(name, function):
    one, (gate, up) = bench(CASES[name]), inputs_of(CASES[name], 3)
    np.testing.assert_allclose(one.forward([gate, up]), function(gate) * up, rtol=1e-12)


def test_a_rotation_leaves_scores_to_the_distance():
    """Equal queries and keys at all positions: a score depends on the distance alone (Su et al. 2021, section 3.1)."""
    one = bench(model_of((7, 12), {"kind": "attention", "heads": 1, "rotary_base": 5}))
    one.forward([np.tile(np.arange(12.0) / 10, (1, 7, 1))])
    scores = np.log(one.saved.values["p"][0, 0, 0])
    scores -= np.diagonal(scores)[:, None]  # without the normalization of each row
    for distance in range(1, 7):
        for diagonal in (np.diagonal(scores, distance), np.diagonal(scores, -distance)):
            np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-12)
    assert np.ptp(scores) > 0.01


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("relu", lambda x: np.where(x > 0, x, 0)),
        ("leaky_relu", lambda x: np.where(x > 0, x, 0.1 * x)),
        ("tanh", lambda x: (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1)),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("gelu", gelu),
        ("silu", lambda x: x / (1 + np.exp(-x))),
        ("global_avg_pool", lambda x: x.mean(axis=(2, 3))),
        ("global_avg_pool, 3-D", lambda x: x.mean(axis=(2, 3, 4))),
        ("flatten", lambda x: x.reshape(len(x), -1)),
        ("flatten, volume", lambda x: x.reshape(len(x), -1)),
    ],
)
def test_formulas_without_weights(name, formula):
    _, x, y, _ = forward(name)
    np.testing.assert_allclose(y, formula(x), rtol=1e-12, atol=1e-14)


def test_sigmoid_neither_overflows_nor_leaves_its_range():
    one = bench(CASES["sigmoid"])
    x = np.array([[-1e4, -50.0, 0.0, 50.0, 1e4, np.inf]])
    with np.errstate(all="raise"):
        np.testing.assert_allclose(one.forward([x]), [[0, 0, 0.5, 1, 1, 1]], atol=1e-15)


def test_attention_with_large_scores_stays_finite():
    one = bench(CASES["attention, causal"])
    assert np.all(np.isfinite(one.forward([1e3 * inputs_of(CASES["attention, causal"], 2)[0]])))


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("dense", lambda x, weight, bias: x @ weight + bias),
        ("dense, sequence", lambda x, weight: np.einsum("nif,fo->nio", x, weight)),
        ("dense, tied", lambda x, weight, bias: np.einsum("nif,vf->niv", x, weight) + bias),
        ("embedding", lambda x, weight: np.eye(len(weight))[x] @ weight),
        ("position_embedding", lambda x, weight: x + weight[: x.shape[1]]),
    ],
)
def test_formulas_with_weights(name, formula):
    _, x, y, weights = forward(name)
    np.testing.assert_allclose(y, formula(x, **weights), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["concat", "concat, sequence", "concat, image"])
def test_concat(name):
    one, inputs = bench(CASES[name]), inputs_of(CASES[name], 2)
    expected = np.concatenate([outside(x) for x in inputs], axis=1)
    np.testing.assert_array_equal(outside(one.forward(inputs)), expected)


# -- dropout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["dropout", "dropout, image", "attention, dropped", "attention, all"]
)
def test_dropout_masks_depend_only_on_seed_step_and_sample(name):
    model = CASES[name]
    (x,) = inputs_of(model, 7)

    def part(first, stop, seed=3, step=2):
        one = bench(model)
        one.saved.context = Context(seed=seed, step=step, first_sample=first)
        inputs = x[..., first:stop] if x.ndim >= 4 else x[first:stop]
        return outside(one.forward([inputs])).copy()

    whole = part(0, 7)
    for cut in ((3,), (1, 2), (2, 2, 6), range(1, 7)):
        ends = [0, *cut, 7]
        parts = [part(a, b) for a, b in pairwise(ends)]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-14)
    assert not np.array_equal(part(0, 7, seed=4), whole)
    assert not np.array_equal(part(0, 7, step=3), whole)


def test_dropout_keeps_its_share_and_the_mean_and_evaluates_to_the_identity():
    one = bench(model_of((10_000,), {"kind": "dropout", "rate": 0.3}))
    ones = np.ones((4, 10_000))
    y = one.forward([ones])
    assert np.mean(y == 0) == pytest.approx(0.3, abs=0.01)  # four standard deviations
    assert y.mean() == pytest.approx(1, abs=0.02)
    assert not np.array_equal(y[0], y[1])
    one.saved.context.training = False
    np.testing.assert_array_equal(one.forward([ones]), ones)


def test_two_layers_drop_different_elements():
    model = model_of((50,), {"kind": "dropout"}, {"kind": "dropout"})
    one, other = bench(model), bench(model_of((50,), {"kind": "dropout"}))
    ones = np.ones((2, 50))
    assert not np.array_equal(one.forward([ones]), other.forward([ones]))


# -- ties -----------------------------------------------------------------------------------------


def test_of_equal_elements_the_first_gets_the_gradient_of_a_max_pool():
    one = bench(CASES["max_pool"])
    x = np.zeros((2, 5, 7, 1))
    _, (dx,), _ = one.run([x], np.ones_like(one.forward([x])))
    expected = np.zeros_like(x)
    expected[:, :4:2, :6:2] = 1
    np.testing.assert_array_equal(dx, expected)
    x[:, 1::2, :6:2] = x[:, ::2, 1::2] = 1  # on a diagonal: first along the last axis
    _, (dx,), _ = one.run([x], np.ones_like(one.forward([x])))
    expected = np.zeros_like(x)
    expected[:, 1:4:2, :6:2] = 1
    np.testing.assert_array_equal(dx, expected)


@pytest.mark.parametrize("elements", [1, 50, 10**6])
@named("max_pool")
def test_max_pool_in_parts_of_any_size(name, elements, monkeypatch):
    expected = run(CASES[name], 2)
    monkeypatch.setattr(max_pool, "LARGE", elements)
    assert_same(run(CASES[name], 2), expected, atol=0)


# -- the tests can fail -----------------------------------------------------------------------------


def test_differences_find_a_border_one_short(monkeypatch):
    right = conv.Conv.backward

    def short(layer, weights, gradients, saved, dy):
        behind = layer._behind.behind
        for block in behind.plan(len(dy), dy.shape[-1], dy.itemsize, columns.CACHE):
            *_, here = block.taps[0].here
            *_, there = block.taps[0].there
            block.taps[0] = block.taps[0]._replace(
                here=(*block.taps[0].here[:-1], slice(here.start, here.stop - 1)),
                there=(*block.taps[0].there[:-1], slice(there.start, there.stop - 1)),
            )
        found = right(layer, weights, gradients, saved, dy)
        behind._plans.clear()
        return found

    monkeypatch.setattr(conv.Conv, "backward", short)
    with pytest.raises(AssertionError, match="input 0"):
        assert_layer(CASES["conv"], 2)


@pytest.mark.parametrize(
    ("name", "weight", "mistake"),
    [
        ("dense", "bias", lambda gradient: gradient / 3),  # a mean over the batch, not a sum
        ("conv", "bias", lambda gradient: gradient / 3),
        ("batch_norm", "scale", lambda gradient: 0 * gradient),
        ("lstm", "recurrent", lambda gradient: gradient * 1.00001),
        ("layer_norm", "shift", lambda gradient: -gradient),
        ("rms_norm", "scale", lambda gradient: 1.00001 * gradient),
        ("embedding", "weight", lambda gradient: np.minimum(gradient, 1)),  # repeats lost
    ],
)
def test_differences_find_a_wrong_gradient_of_a_weight(name, weight, mistake, monkeypatch):
    kind = KINDS[CASES[name].layers[-1].kind]
    right = kind.backward

    def wrong(layer, weights, gradients, saved, dy):
        dx = right(layer, weights, gradients, saved, dy)
        gradients[weight][...] = mistake(gradients[weight])
        return dx

    monkeypatch.setattr(kind, "backward", wrong)
    with pytest.raises(AssertionError, match=weight):
        assert_layer(CASES[name], 3)


@pytest.mark.parametrize(
    ("name", "method", "mistake"),
    [
        ("attention, rotary", "_turned", lambda turned: turned * 1.0001),
        ("attention, window", "_masked", lambda masked: np.triu(masked, 1)),
    ],
)
def test_the_formula_finds_a_wrong_position(name, method, mistake, monkeypatch):
    kind = KINDS["attention"]
    right = getattr(kind, method)
    monkeypatch.setattr(kind, method, lambda *arguments: mistake(right(*arguments)))
    with pytest.raises(AssertionError):
        test_attention(name)


def test_finite_differences_detect_statistics_treated_as_constants(monkeypatch):
    def constant(layer, weights, gradients, saved, dy):
        right(layer, weights, gradients, saved, dy.copy())
        return dy * (weights["scale"] * saved.values["inverse"])

    right = batch_norm.BatchNorm.backward
    monkeypatch.setattr(batch_norm.BatchNorm, "backward", constant)
    with pytest.raises(AssertionError, match="input 0"):
        assert_layer(CASES["batch_norm"], 3)


def test_a_layer_that_is_compared_takes_little_more_memory():
    """Its cached values are among the names that all layers share: a dictionary of its own would triple its size."""
    many = [Layer(f"a{number}", "relu", (), (1,), (1,)) for number in range(100)]
    for layer in many:
        assert layer.traits and layer.likeness >= 0
    assert sys.getsizeof(vars(many[-1])) < 400  # B; 832 with one


def test_a_layer_from_another_process_is_not_like_those_that_have_its_number_here(monkeypatch):
    relu, tanh = (Layer("a", each, (), (1,), (1,)) for each in ("relu", "tanh"))
    monkeypatch.setattr(kind, "_LIKENESSES", {})
    assert relu.likeness == 0
    sent = pickle.dumps(relu)
    monkeypatch.setattr(kind, "_LIKENESSES", {})  # as in the other process
    assert tanh.likeness == 0
    received = pickle.loads(sent)
    assert received == relu
    assert received.likeness != tanh.likeness
