"""Mixture of experts whose feed-forward networks are gated, without biases."""

from typing import Literal

import numpy as np

from lib_dlhpc.layers.base.kind import Counts, Factor, Layer, Site
from lib_dlhpc.layers.base.routing import NO_LIMIT
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors, chunks
from lib_dlhpc.layers.experts import Experts, pairs_of, slices
from lib_dlhpc.layers.glu import FUNCTIONS


class GatedExperts(Experts):
    """y = sum of w (a(x Wg) * (x Wu)) Wd over the chosen experts of a position (Jiang et al. 2024, section 2.1).

    Routed as in experts.py; the activation a is silu (SwiGLU) or gelu.
    """

    expert_parameters = ("gate", "up", "down")
    kept = ("rows", "gate", "up", "active")
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
        activation: Literal["silu", "gelu"] = "silu",
    ) -> Counts:
        """Return the counts; options as in experts.py. Stores gate, up and their product, and each row of output."""
        counts = Experts.describe(site, experts, chosen, features, capacity, groups, chosen_groups)
        pairs, width = pairs_of(site, experts, chosen, capacity), site.shape[-1]
        return counts._replace(
            parameters=3 * experts * width * features,
            forward_flop=6.0 * pairs * width * features,
            stored=pairs * (3 * features + width),
            attributes={**counts.attributes, "activation": activation},
        )

    @staticmethod
    def numpy_traffic(layer: Layer) -> float:
        """Return the elements of copied positions, and of what the gates read and write."""
        options = layer.attributes
        return float(options["routed"] * (4 * layer.output_shape[-1] + 5 * options["features"]))

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        self.function, self.slope = FUNCTIONS[layer.attributes["activation"]]

    def shapes_of(self, experts: int) -> Shapes:
        """Return the shapes of the weights of a number of experts."""
        inward, outward = (self.width, self.features), (self.features, self.width)
        return {"gate": (experts, *inward), "up": (experts, *inward), "down": (experts, *outward)}

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Initialize the weights: He et al. 2015, equation 10."""
        for name, inputs in (("gate", self.width), ("up", self.width), ("down", self.features)):
            weights[name][...] = rng.normal(0, np.sqrt(2 / inputs), weights[name].shape)

    def networks(self, weights: Tensors, saved: Saved, x: Array, here: Array) -> Array:
        """Return the outputs of the experts for their rows, `here` of each."""
        gate, up = (np.empty((len(x), self.features), x.dtype) for _ in range(2))
        out = np.empty_like(x)
        for expert, own in slices(here):
            np.matmul(x[own], weights["gate"][expert], out=gate[own])
            np.matmul(x[own], weights["up"][expert], out=up[own])
        active = np.empty_like(gate)
        for y, a, b in chunks(active, gate, up):
            np.multiply(self.function(a), b, out=y)
        for expert, own in slices(here):
            np.matmul(active[own], weights["down"][expert], out=out[own])
        saved.values.update(gate=gate, up=up, active=active)
        return out

    def networks_back(self, weights: Tensors, gradients: Tensors, saved: Saved, g: Array) -> Array:
        """Return the gradients of the rows and of their weights; g: of their sums' terms."""
        rows, here, active = (saved.values[name] for name in ("rows", "here", "active"))
        gate, up = saved.values["gate"], saved.values["up"]
        back, t = np.empty_like(rows), np.empty_like(active)
        for expert, own in slices(here):
            np.matmul(g[own], weights["down"][expert].T, out=t[own])
        back[:, -1] = np.einsum("ij,ij->i", t, active)
        g *= rows[:, -1:]
        t *= rows[:, -1:]
        dgate, dup = np.empty_like(t), t
        for down, both, a, b in chunks(dgate, t, gate, up):
            np.multiply(both, b, out=down)
            down *= self.slope(a)
            both *= self.function(a)
        for expert, own in slices(here):
            x = rows[own, :-1]
            np.matmul(active[own].T, g[own], out=gradients["down"][expert])
            np.matmul(x.T, dgate[own], out=gradients["gate"][expert])
            np.matmul(x.T, dup[own], out=gradients["up"][expert])
            np.matmul(dgate[own], weights["gate"][expert].T, out=back[own, :-1])
            np.matmul(dup[own], weights["up"][expert].T, out=x)  # not read any more
            back[own, :-1] += x
        return back
