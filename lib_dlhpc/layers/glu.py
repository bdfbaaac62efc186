"""Gated linear unit: one input through an activation, times the other input."""

from typing import Any, Literal

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors, chunks
from lib_dlhpc.layers.gelu import gelu, gelu_slope
from lib_dlhpc.layers.silu import silu, silu_slope

FUNCTIONS = {"silu": (silu, silu_slope), "gelu": (gelu, gelu_slope)}


class Glu(Kind):
    """activation(gate) times up, element by element: SwiGLU with silu, GEGLU with gelu (Shazeer 2020, eq. 5).

    Its inputs are the outputs of two products, so that a product split by columns splits it by features.
    """

    backward_reads = frozenset({"input"})
    light = True
    tensor, sequence, spatial = "features", True, "rows"
    several_inputs = True

    @staticmethod
    def describe(site: Site, activation: Literal["silu", "gelu"] = "silu") -> Counts:
        """Return the counts; its inputs are the gate and what it multiplies, of equal shape.

        It stores its output beside both inputs: a fused kernel computes the activation again in backward.
        """
        if len(site.shapes) != 2 or site.shapes[0] != site.shapes[1]:
            raise SpecError(
                f"{site.name}: a gated linear unit reads two inputs of equal shape, not"
                f" {', '.join(map(str, site.shapes))}."
            )
        return Counts(site.shape, attributes={"activation": activation})

    def __init__(self, layer: Layer) -> None:
        self.function, self.slope = FUNCTIONS[layer.attributes["activation"]]

    def forward(self, weights: Tensors, saved: Saved, *x: Array) -> Array:
        """Return y = activation(gate) * up."""
        gate, up = x
        saved.values.update(gate=gate, up=up)
        y = saved.array(gate.shape, gate.dtype)
        for own, a, b in chunks(y, gate, up):
            np.multiply(self.function(a), b, out=own)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return the gradients of gate and up."""
        gate, up = saved.values["gate"], saved.values["up"]
        dgate = saved.array(dy.shape, dy.dtype)
        for own, down, a, b in chunks(dgate, dy, gate, up):
            np.multiply(down, b, out=own)
            own *= self.slope(a)
            down *= self.function(a)
        return dgate, dy
