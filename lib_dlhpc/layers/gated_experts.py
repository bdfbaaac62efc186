"""Mixture of experts whose feed-forward networks are gated."""

from typing import Literal

import numpy as np

from lib_dlhpc.layers.base.elementwise import logistic
from lib_dlhpc.layers.base.kind import Counts, Factor, Layer, Site
from lib_dlhpc.layers.base.routing import NO_LIMIT
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors, chunks
from lib_dlhpc.layers.experts import Experts, pairs_of, slices
from lib_dlhpc.layers.glu import FUNCTIONS

LIMIT, SHARPNESS = 7.0, 1.702  # of the clamped activation
CLAMPED = "clamped"
WIDE = 4  # B of a weight of the dispatcher


def swish(x: Array) -> Array:
    """Return x / (1 + exp(-1.702 x))."""
    return x * logistic(x.dtype.type(SHARPNESS) * x)


def swish_slope(x: Array) -> Array:
    """Return the derivative of swish at x; 0 at the limit, where x was clamped."""
    share = logistic(x.dtype.type(SHARPNESS) * x)
    slope = share * (1 + x.dtype.type(SHARPNESS) * x * (1 - share))
    return np.where(x < LIMIT, slope, x.dtype.type(0))


ROWS = 512  # of a product whose result is a copy: many enough to be fast


class GatedExperts(Experts):
    """y = sum of w (a(x Wg) * (x Wu)) Wd over the chosen experts of a position (Jiang et al. 2024, section 2.1).

    Routed as in experts.py; the activation a is silu (SwiGLU) or gelu, or clamped: of min(x Wg, 7) and x Wu between -7
    and 7, (x Wu + 1) x Wg sigmoid(1.702 x Wg) (OpenAI 2025, "gpt-oss", published code). bias: of all three products.
    """

    expert_parameters = ("gate", "gate_bias", "up", "up_bias", "down", "down_bias")
    inward, outward = ("gate", "up"), "down"
    gradients_within = 2

    @staticmethod
    def describe(
        site: Site,
        experts: int,
        chosen: int,
        features: int,
        capacity: Factor = NO_LIMIT,
        groups: int = 1,
        chosen_groups: int = 0,
        activation: Literal["silu", "gelu", "clamped"] = "silu",
        bias: bool = False,
    ) -> Counts:
        """Return the counts; options as in experts.py. Stores gate, up and their product, and each row of output."""
        counts = Experts.describe(site, experts, chosen, features, capacity, groups, chosen_groups)
        pairs, width = pairs_of(site, experts, chosen, capacity), site.shape[-1]
        return counts._replace(
            parameters=experts * (3 * width * features + bias * (2 * features + width)),
            forward_flop=6.0 * pairs * width * features,
            stored=pairs * (3 * features + width),
            attributes={**counts.attributes, "activation": activation, "bias": bias},
        )

    @staticmethod
    def numpy_traffic(layer: Layer) -> float:
        """Return the elements of copied positions, and of what the gates read and write."""
        options = layer.attributes
        return float(options["routed"] * (4 * layer.output_shape[-1] + 5 * options["features"]))

    @classmethod
    def beside(cls, layer: Layer, size: int) -> tuple[float, float]:
        """Return what is moved as in experts.py, and by the kernels of the last bias and of the limits.

        That bias is weighted as its rows are: it is multiplied, added and put together again expert by expert, each a
        kernel; both limits write what they read, and what they wrote is put side by side (NVIDIA, Megatron-LM core
        0.15 to 0.18: TEGroupedMLP._apply_bias, weighted_bias_quick_geglu_impl). If each device gets one copy, weights
        come in 32 bits (token_dispatcher.py), and so do these terms until they are cast. The first two biases are added
        within their products.
        """
        options, width = layer.attributes, layer.output_shape[-1]
        ahead, back = super().beside(layer, size)
        rows, inner = options["routed"] * width, options["routed"] * options["features"]
        if options["bias"]:
            wide = options.get("gathered") and size < WIDE
            moved, moved_back = (28, 40) if wide else (6 * size, 8 * size)
            ahead, back = ahead + moved * rows, back + moved_back * rows
        if options["activation"] == CLAMPED:
            ahead, back = ahead + 8 * size * inner, back + 10 * size * inner
        return float(ahead), float(back)

    @classmethod
    def _beside_products(cls, layer: Layer) -> int:
        """Return the kernels as in experts.py, and those of the last bias, two of each expert, and of the limits."""
        options, many = layer.attributes, super()._beside_products(layer)
        if options["bias"]:
            many += 2 * cls._here(layer) + 1
        return many + (3 if options["activation"] == CLAMPED else 0)

    @classmethod
    def accumulates(cls, layer: Layer) -> int:
        """Return one kernel for each of an expert's two biases: gradients of weights are added within their products
        (NVIDIA, Megatron-LM core 0.15: DistributedDataParallel._make_backward_post_hook)."""
        return 2 * cls._here(layer) if layer.attributes["bias"] else 0

    def __init__(self, layer: Layer) -> None:
        self.bias = layer.attributes["bias"]
        self.clamps = layer.attributes["activation"] == CLAMPED
        super().__init__(layer)
        known = {**FUNCTIONS, CLAMPED: (swish, swish_slope)}
        self.function, self.slope = known[layer.attributes["activation"]]

    def shapes_of(self, experts: int) -> Shapes:
        """Return the shapes of the weights of a number of experts."""
        ends = {"gate": (self.width, self.features), "up": (self.width, self.features)}
        ends["down"] = (self.features, self.width)
        shapes: Shapes = {name: (experts, *shape) for name, shape in ends.items()}
        if self.bias:
            shapes |= {f"{name}_bias": (experts, shape[-1]) for name, shape in ends.items()}
        return shapes

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Initialize the weights: He et al. 2015, equation 10."""
        for name, inputs in (("gate", self.width), ("up", self.width), ("down", self.features)):
            weights[name][...] = rng.normal(0, np.sqrt(2 / inputs), weights[name].shape)
            if self.bias:
                weights[f"{name}_bias"].fill(0)

    def networks(self, weights: Tensors, saved: Saved, x: Array, here: Array) -> Array:
        """Return the outputs of the experts for their rows, `here` of each."""
        gate, up = (np.empty((len(x), self.features), x.dtype) for _ in range(2))
        out = np.empty_like(x)
        for expert, own in slices(here):
            self._multiply(weights, "gate", expert, x[own], gate[own])
            self._multiply(weights, "up", expert, x[own], up[own])
        if self.clamps:
            np.minimum(gate, LIMIT, out=gate)
            np.clip(up, -LIMIT, LIMIT, out=up)
            up += 1
        active = np.empty_like(gate)
        for y, a, b in chunks(active, gate, up):
            np.multiply(self.function(a), b, out=y)
        for expert, own in slices(here):
            self._multiply(weights, "down", expert, active[own], out[own])
        saved.values.update(gate=gate, up=up, active=active)
        return out

    def _multiply(self, weights: Tensors, name: str, expert: int, x: Array, out: Array) -> None:
        np.matmul(x, weights[name][expert], out=out)
        if self.bias:
            out += weights[f"{name}_bias"][expert]

    def networks_back(self, weights: Tensors, saved: Saved, g: Array) -> Array:
        """Return the gradients of the rows and of their weights; g: of their sums' terms."""
        values = saved.values
        rows, here, active = (values[name] for name in ("rows", "here", "active"))
        gate, up = values.pop("gate"), values.pop("up")
        back, t = np.empty_like(rows), np.empty_like(active)
        for expert, own in slices(here):
            np.matmul(g[own], weights["down"][expert].T, out=t[own])
        back[:, -1] = np.einsum("ij,ij->i", t, active)
        if self.bias:
            for expert, own in slices(here):
                back[own, -1] += g[own] @ weights["down_bias"][expert]
        g *= rows[:, -1:]
        t *= rows[:, -1:]
        dgate, dup = np.empty_like(t), t
        for down, both, a, b in chunks(dgate, t, gate, up):
            np.multiply(both, b, out=down)
            down *= self.slope(a)
            both *= self.function(a)
            if self.clamps:  # up holds 1 more
                both *= np.abs(b - 1) < LIMIT
        del gate, up
        values.update({"d down": g, "d gate": dgate, "d up": dup})
        for expert, own in slices(here):
            np.matmul(dgate[own], weights["gate"][expert].T, out=back[own, :-1])
            for first in range(own.start, own.stop, ROWS):
                some = slice(first, min(first + ROWS, own.stop))
                back[some, :-1] += dup[some] @ weights["up"][expert].T
        return back
