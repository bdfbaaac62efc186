"""Minimal filtering is the convolution, in any space and block, and is what large convolutions use."""

import numpy as np
import pytest
from layer_references import assert_layer, bench, convolution, inputs_of, model_of, outside

from lib_dlhpc.layers import Context, Saved, conv
from lib_dlhpc.layers.base import columns, minimal

# name: samples, padding, bias; spaces of odd and even extent, tiles that reach out of them
CASES = {
    "even": ((2, 4, 6), 1, True),
    "odd": ((3, 5, 7), 1, False),
    "inner": ((2, 5, 4), 0, True),
    "one output": ((2, 3, 3), 0, True),
    "mixed": ((2, 3, 6), [0, 1], True),
    "volume": ((2, 3, 4, 5), 1, True),
    "inner volume": ((1, 4, 3, 5), [0, 0, 1], False),
    "large": ((2, 9, 11), 1, True),
}
every_case = pytest.mark.parametrize("name", CASES)


def network(name):
    shape, padding, bias = CASES[name]
    return model_of(
        shape, {"kind": "conv", "channels": 3, "kernel": 3, "padding": padding, "bias": bias}
    )


def results(name, dtype=np.float64, batch=3):
    """Return y, dx and the gradients of the weights."""
    one, inputs = bench(network(name), dtype), inputs_of(network(name), batch, dtype)
    dy = np.random.default_rng(1).normal(size=one.forward(inputs).shape).astype(dtype)
    y, (dx,), gradients = one.run(inputs, dy)
    return {"y": y, "dx": dx, **gradients}


@pytest.fixture
def of_any_size(monkeypatch):
    monkeypatch.setattr(conv, "DEEP", (1, 1))
    monkeypatch.setattr(conv, "DEEP_BACK", (1, 1))
    monkeypatch.setattr(conv, "LARGE", 0)
    monkeypatch.setattr(conv, "SPARING", np.inf)


@every_case
def test_it_is_the_definition(name, of_any_size):
    one, inputs = bench(network(name)), inputs_of(network(name), 2)
    expected = convolution(
        outside(inputs[0]),
        one.weights["weight"],
        one.weights.get("bias"),
        *(one.noun.attributes[key] for key in ("stride", "padding", "groups")),
    )
    np.testing.assert_allclose(outside(one.forward(inputs)), expected, atol=1e-12)


@every_case
def test_its_gradients_equal_differences(name, of_any_size):
    assert_layer(network(name), 2)


@pytest.mark.parametrize(("dtype", "close"), [(np.float64, 1e-12), (np.float32, 5e-6)])
# Bytes of blocks, positions of a row in them, bytes of parts, tiles in a row from which rows are products of their own.
@pytest.mark.parametrize(
    "sizes", [(0, 0, 0, 0), (9000, 0, 3000, 0), (9000, 0, 3000, 99), (10**9, 256, 10**9, 0)]
)
@every_case
def test_it_is_what_columns_give_in_blocks_of_any_size(
    name, sizes, dtype, close, of_any_size, monkeypatch
):
    cache, wide, part, narrow = sizes
    monkeypatch.setattr(columns, "WIDE", wide)
    for constant, size in (("CACHE", cache), ("PART", part), ("NARROW", narrow)):
        monkeypatch.setattr(minimal, constant, size)
    found = results(name, dtype)
    monkeypatch.setattr(conv, "DEEP", (10**9, 10**9))
    monkeypatch.setattr(conv, "DEEP_BACK", (10**9, 10**9))
    expected = results(name)
    assert found.keys() == expected.keys()
    for key in found:
        scale = np.abs(expected[key]).max()
        np.testing.assert_allclose(found[key], expected[key], atol=close * scale, err_msg=key)


def test_no_samples_give_no_gradient(of_any_size):
    found = results("volume", batch=0)
    assert found["y"].shape == (3, 3, 4, 5, 0) and found["dx"].shape == (2, 3, 4, 5, 0)
    assert not found["weight"].any() and not found["bias"].any()


@pytest.mark.parametrize("outputs", [(0, 5), (3, 0)])
def test_a_part_without_outputs_gives_no_gradient(outputs):
    own = minimal.Minimal(tuple(extent or 2 for extent in outputs), outputs, (0, 0))
    x, dy = np.ones((2, *own.ahead.inputs, 3)), np.ones((4, *outputs, 3))
    weight, dx = np.ones((4, 2, 3, 3)), np.zeros_like(x)
    own.forward(Saved(Context()), x, weight, np.ones(4), dy)
    assert not own.backward(Saved(Context()), dy, x, weight, dx).any() and not dx.any()
    assert minimal.flop_ratio(outputs) == pytest.approx(0.8 if outputs[1] else 1)


def test_gradients_one_at_a_time_are_those_of_both(of_any_size):
    one, inputs = bench(network("odd")), inputs_of(network("odd"), 2)
    dy = np.random.default_rng(1).normal(size=one.forward(inputs).shape)
    _, (dx,), gradients = one.run(inputs, dy)
    np.testing.assert_array_equal(one.layer.input_gradient(one.weights, one.saved, dy), dx)
    apart = {"weight": np.full_like(gradients["weight"], np.nan)}
    one.layer.weight_gradient(apart, one.saved, dy)
    np.testing.assert_array_equal(apart["weight"], gradients["weight"])
    one.saved.wants_dx = False
    assert one.layer.backward(one.weights, apart, one.saved, dy) is None
    np.testing.assert_array_equal(apart["weight"], gradients["weight"])


@pytest.mark.parametrize(
    ("shape", "channels", "options", "used"),
    [
        ((64, 6, 6), 64, {}, "forward backward"),
        ((64, 5, 6), 64, {}, ""),
        ((64, 8, 8), 63, {}, "backward"),
        ((63, 8, 8), 64, {}, "backward"),
        ((31, 9, 9), 32, {}, ""),
        ((32, 4, 4, 4), 32, {}, "forward backward"),
        ((16, 4, 5, 7), 16, {}, "forward backward"),
        ((15, 4, 5, 7), 16, {}, ""),
        ((512, 2, 2), 512, {}, ""),  # a tile of four has two outputs
        ((512, 2, 3), 512, {}, "forward backward"),
        ((256, 4, 4), 256, {"padding": 0}, "backward"),
        ((256, 2, 2, 2), 256, {}, ""),
        ((64, 6, 6), 64, {"kernel": [3, 1], "padding": 0}, ""),
        ((64, 6, 6), 64, {"stride": [1, 2]}, ""),
        ((64, 6, 6), 64, {"groups": 2}, ""),
    ],
)
def test_large_convolutions_use_it(shape, channels, options, used, monkeypatch):
    calls = []
    for name in ("forward", "backward"):
        right = getattr(minimal.Minimal, name)
        spy = lambda *given, right=right: (calls.append(right.__name__), right(*given))[1]  # noqa: E731
        monkeypatch.setattr(minimal.Minimal, name, spy)
    layer = {"kind": "conv", "channels": channels, "kernel": 3, "padding": 1, **options}
    model = model_of(shape, layer)
    one, inputs = bench(model), inputs_of(model, 1)
    one.run(inputs, np.ones_like(one.forward(inputs)))
    assert " ".join(sorted(set(calls), reverse=True)) == used
