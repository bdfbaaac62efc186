"""References: derivatives by finite differences, and layers in the form of their formulas.

Everything here has samples first, (batch, channels, *space), whatever the layers do inside.
"""

from dataclasses import dataclass
from itertools import product
from math import ceil, pi, prod, sqrt, tanh
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lib_dlhpc.layers import Context, Saved
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.spec.networks import build

# A central difference over 2h errs by h^2 / 6 of the third derivative, 1e-11 here, and by the loss's own
# rounding over h, about 2e-16 * 100 / 1e-5 = 2e-9 for losses up to 100: 1e-7 leaves arena for both,
# and is far below any mistake of a formula.
STEP, TOLERANCE = 1e-5, 1e-7


def model_of(shape: tuple[int, ...], *layers: dict[str, Any]) -> Model:
    """Return a network as a list of layers."""
    return build("sequential", {"input": list(shape), "layers": list(layers)})


def samples_of(model: Model, batch: int, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    """Return random samples: integers where an embedding reads them."""
    rng = np.random.default_rng([seed, 1])
    readers = [layer for layer in model.layers if "input" in layer.inputs]
    if readers[0].kind == "embedding":
        return rng.integers(readers[0].attributes["vocabulary"], size=(batch, *model.input_shape))
    return rng.normal(size=(batch, *model.input_shape)).astype(dtype)


@dataclass
class Bench:
    """One layer by itself, with weights that all differ from their initial values."""

    layer: Any
    noun: Layer
    weights: dict[str, np.ndarray]
    saved: Saved

    def run(self, inputs: list[np.ndarray], dy: np.ndarray) -> tuple[np.ndarray, Any, dict]:
        """Return output, gradients of the inputs and of the weights; the arguments are unchanged."""
        y = self.forward(inputs).copy()
        gradients = {name: np.full_like(w, np.nan) for name, w in self.weights.items()}
        if getattr(self.layer, "tied", False):  # adds to what its partner gave
            gradients["weight"].fill(0)
        dx = self.layer.backward(self.weights, gradients, self.saved, dy.copy())
        return y, dx if isinstance(dx, tuple) else (dx,), gradients

    def forward(self, inputs: list[np.ndarray]) -> np.ndarray:
        return self.layer.forward(self.weights, self.saved, *(x.copy() for x in inputs))


def bench(model: Model, dtype: Any = np.float64, **flags: bool) -> Bench:
    """Return the last layer of a model, ready to run."""
    noun = model.layers[-1]
    layer = noun.traits(noun)
    for name, shape in getattr(layer, "statistics", {}).items():
        layer.running[name] = np.full(shape, float(name == "variance"), dtype)
    shapes = dict(getattr(layer, "shapes", {}))
    if noun.attributes.get("tied"):
        shapes["weight"] = (noun.attributes["features"], noun.input_shape[-1])
    rng = np.random.default_rng(7)
    weights = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    return Bench(layer, noun, weights, Saved(Context(seed=3, step=2, first_sample=1), **flags))


def inputs_of(model: Model, batch: int, dtype: Any = np.float64) -> list[np.ndarray]:
    """Return what the last layer of a model reads, laid out as the layer wants it."""
    noun = model.layers[-1]
    if noun.kind == "embedding":
        return [samples_of(model, batch)]
    shapes = {layer.name: layer.output_shape for layer in model.layers}
    shapes["input"] = model.input_shape
    rng = np.random.default_rng(5)
    return [inside(rng.normal(size=(batch, *shapes[name])).astype(dtype)) for name in noun.inputs]


def inside(x: np.ndarray) -> np.ndarray:
    """Return samples in the layers' layout: images and volumes with the samples last."""
    return np.ascontiguousarray(np.moveaxis(x, 0, -1)) if x.ndim >= 4 else x


def outside(y: np.ndarray) -> np.ndarray:
    """Return an array in the layers' layout with the samples first."""
    return np.moveaxis(y, -1, 0) if y.ndim >= 4 else y


def assert_layer(model: Model, batch: int, make: Any = bench) -> None:
    """Compare every gradient of a model's last layer with differences of its output."""
    inputs, one = inputs_of(model, batch), make(model)
    dy = np.random.default_rng(9).normal(size=one.forward(inputs).shape)
    _, dx, gradients = one.run(inputs, dy)

    def loss() -> float:
        return float(np.sum(one.forward(inputs) * dy))

    for name, weight in one.weights.items():
        assert_gradient(name, gradients[name], loss, weight)
    for number, (x, part) in enumerate(zip(inputs, dx, strict=True)):
        if x.dtype.kind == "f":
            assert part.shape == x.shape
            assert_gradient(f"input {number}", part, loss, x)


def assert_gradient(name: str, gradient: np.ndarray, loss: Any, at: np.ndarray) -> None:
    """Compare a gradient with central differences of a loss that reads the array `at`."""
    expected = np.empty_like(at)
    for place in np.ndindex(at.shape):
        middle = at[place]
        at[place] = middle + STEP
        above = loss()
        at[place] = middle - STEP
        expected[place] = (above - loss()) / (2 * STEP)
        at[place] = middle
    atol = TOLERANCE * max(1.0, float(np.max(np.abs(expected), initial=0)))
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=atol, err_msg=name)


# -- layers, as plainly as their formulas -------------------------------------------------------------


def convolution(x, weight, bias, stride, padding, groups):
    """y[n, o, p] = b[o] + sum over c, k of w[o, c, k] x[n, c, p * stride + k - padding]."""
    space = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *((pad, pad) for pad in padding)])
    windows = sliding_window_view(padded, weight.shape[2:], axis=tuple(range(2, x.ndim)))
    windows = windows[(slice(None), slice(None), *(slice(None, None, step) for step in stride))]
    windows = windows.reshape(*windows.shape[: 2 + space], prod(weight.shape[2:]))
    parts = [
        np.einsum("nc...k,ock->no...", part, w.reshape(*w.shape[:2], -1))
        for part, w in zip(
            np.split(windows, groups, axis=1), np.split(weight, groups, axis=0), strict=True
        )
    ]
    y = np.concatenate(parts, axis=1)
    return y if bias is None else y + bias.reshape(-1, *(1,) * space)


def pool(x, kernel, stride, padding, output, largest):
    """The largest, or the sum over the size of the kernel, of each window, one output at a time."""
    y = np.empty((*x.shape[:2], *output))
    for place in np.ndindex(*output):
        corner = [p * s - pad for p, s, pad in zip(place, stride, padding, strict=True)]
        part = tuple(slice(max(0, c), max(0, c + k)) for c, k in zip(corner, kernel, strict=True))
        seen = x[(slice(None), slice(None), *part)].reshape(*x.shape[:2], -1)
        y[(slice(None), slice(None), *place)] = (
            seen.max(axis=2) if largest else seen.sum(axis=2) / prod(kernel)
        )
    return y


def attention(x, heads, causal, kv_heads, window, rotary_base, alibi):
    """For each sample, head and position: a mean of values, weighted by exp(q . k / sqrt(d))."""
    batch, positions, width = x.shape
    size = width // (heads + 2 * kv_heads)
    y = np.zeros((batch, positions, heads * size))

    def vector(n, i, head, turned):
        part = x[n, i, head * size : (head + 1) * size]
        if not (turned and rotary_base):
            return part
        half = size // 2  # features j and j + half are a complex number
        pairs = part[:half] + 1j * part[half:]
        pairs *= [np.exp(1j * i / rotary_base ** (2 * j / size)) for j in range(half)]
        return np.concatenate([pairs.real, pairs.imag])

    for n, head, i in product(range(batch), range(heads), range(positions)):
        key = heads + head // (heads // kv_heads)
        first = max(0, i - window + 1) if window else 0
        seen = range(first, i + 1 if causal else positions)
        slope = slopes(heads)[head] if alibi else 0
        weights = []
        for j in seen:
            score = vector(n, i, head, True) @ vector(n, j, key, True) / sqrt(size)
            weights.append(np.exp(score - slope * (i - j)))
        values = np.array([vector(n, j, key + kv_heads, False) for j in seen])
        y[n, i, head * size : (head + 1) * size] = weights @ values / np.sum(weights)
    return y


def slopes(heads):
    """Of ALiBi: a geometric sequence; without a power of two, also odd members of that of the next power."""
    if heads & (heads - 1) == 0:
        return [2 ** (-8 * (head + 1) / heads) for head in range(heads)]
    below = 1 << (heads.bit_length() - 1)
    return slopes(below) + slopes(2 * below)[::2][: heads - below]


def expert(x, weights, clamped=False):
    """One feed-forward network: gated, with biases and GELU, or with neither and a squared ReLU."""
    if "gate" in weights:
        bias = {name: weights.get(f"{name}_bias", 0.0) for name in ("gate", "up", "down")}
        gate, up = (x @ weights[name] + bias[name] for name in ("gate", "up"))
        steep = 1.702 if clamped else 1.0
        if clamped:
            gate, up = np.minimum(gate, 7), np.clip(up, -7, 7) + 1
        return (gate / (1 + np.exp(-steep * gate)) * up) @ weights["down"] + bias["down"]
    if "expand_bias" not in weights:
        return np.maximum(x @ weights["expand"], 0) ** 2 @ weights["contract"]
    hidden = gelu(x @ weights["expand"] + weights["expand_bias"])
    return hidden @ weights["contract"] + weights["contract_bias"]


def experts(x, scores, weights, chosen, capacity, clamped=False):
    """Output, positions that chose each expert, and dropped choices: one sample, one choice at a time."""
    batch, positions, _ = x.shape
    count = scores.shape[-1]
    limit = ceil(capacity * chosen * positions / count) if capacity else positions
    y, load, dropped = np.zeros_like(x), [0] * count, 0
    for n in range(batch):
        taken = [0] * count
        tops = [sorted(range(count), key=lambda e, i=i: -scores[n, i, e]) for i in range(positions)]
        for number, i in product(range(chosen), range(positions)):
            e = tops[i][number]
            load[e] += 1
            if taken[e] == limit:
                dropped += 1
                continue
            taken[e] += 1
            of = range(count) if chosen == 1 else tops[i][:chosen]
            w = np.exp(scores[n, i, e]) / sum(np.exp(scores[n, i, each]) for each in of)
            y[n, i] += w * expert(x[n, i], {key: each[e] for key, each in weights.items()}, clamped)
    return y, load, dropped


def lstm(x, weight, recurrent, bias, sequences):
    """One sample after the other, one step after the other; gates i, f, o and the candidate g."""
    hidden = len(recurrent)
    y = np.zeros((len(x), x.shape[1], hidden))
    for n, sample in enumerate(x):
        h, c = np.zeros(hidden), np.zeros(hidden)
        for step, now in enumerate(sample):
            i, f, o, g = np.split(now @ weight + h @ recurrent + bias, 4)
            i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
            c = f * c + i * np.tanh(g)
            h = o * np.tanh(c)
            y[n, step] = h
    return y if sequences else y[:, -1]


def normalized(x, axes, scale, shift, epsilon=1e-5):
    """(x - mean) / sqrt(variance + epsilon) over some axes, then scaled and shifted."""
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * scale + shift


def gelu(x):
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), an element at a time."""
    return np.vectorize(lambda v: v / 2 * (1 + tanh(sqrt(2 / pi) * (v + 0.044715 * v**3))))(x)
