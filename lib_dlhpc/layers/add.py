"""The sum of layers of equal shape: a residual connection."""

from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError
from lib_dlhpc.layers.base.elementwise import in_place
from lib_dlhpc.layers.base.kind import Counts, Kind, Site
from lib_dlhpc.layers.base.saved import Array, Saved, Tensors


class Add(Kind):
    """The sum of its inputs: a residual connection."""

    backward_reads = frozenset()
    tensor, sequence, spatial = "features", True, "rows"
    several_inputs = True

    @staticmethod
    def describe(site: Site) -> Counts:
        """Return the counts."""
        if len(set(site.shapes)) > 1:
            raise SpecError(f"{site.name}: cannot add shapes {', '.join(map(str, site.shapes))}.")
        return Counts(site.shape)

    def forward(self, weights: Tensors, saved: Saved, *x: Array) -> Array:
        """Return y."""
        y = in_place(saved, x[0])
        np.add(x[0], x[1] if len(x) > 1 else 0, out=y)
        for more in x[2:]:
            y += more
        saved.values["inputs"] = len(x)
        return y

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return the gradient of each input, as separate arrays that may be overwritten."""
        copies = [saved.array(dy.shape, dy.dtype) for _ in range(saved.values["inputs"] - 1)]
        for copy in copies:
            copy[...] = dy
        return (dy, *copies)
