"""Long short-term memory (Hochreiter and Schmidhuber 1997; with forget gates, Gers et al. 2000)."""

from typing import Any

import numpy as np

from lib_dlhpc.layers.base.elementwise import logistic
from lib_dlhpc.layers.base.kind import Counts, Kind, Layer, Site
from lib_dlhpc.layers.base.saved import Array, Rng, Saved, Shapes, Tensors


class Lstm(Kind):
    """c' = f c + i g and h' = o tanh(c'), gates i, f, o and candidate g from W x + U h + b.

    x of shape (batch, steps, features); y (batch, steps, hidden), or only the last step's.
    """

    dimensions = (2,)

    @staticmethod
    def describe(site: Site, hidden: int, sequences: bool = True) -> Counts:
        """Return the counts: one bias a gate; gates, cell and output of each step are stored.

        sequences = false returns only the last step's output.
        """
        steps, features = site.at_least(2)
        weights = 4 * hidden * (features + hidden)
        return Counts(
            (steps, hidden) if sequences else (hidden,),
            parameters=weights + 4 * hidden,
            forward_flop=2.0 * steps * weights,
            stored=6 * steps * hidden,
            attributes={"hidden": hidden, "sequences": sequences},
        )

    def __init__(self, layer: Layer) -> None:
        features, self.hidden = layer.input_shape[-1], layer.attributes["hidden"]
        self.sequences = layer.attributes["sequences"]
        self.shapes: Shapes = {
            "weight": (features, 4 * self.hidden),
            "recurrent": (self.hidden, 4 * self.hidden),
            "bias": (4 * self.hidden,),
        }

    def start(self, weights: Tensors, rng: Rng) -> None:
        """Normal numbers as wide as the inputs ask; the forget gate starts open (Jozefowicz et al. 2015)."""
        for name in ("weight", "recurrent"):
            weights[name][...] = rng.normal(0, 1 / np.sqrt(len(weights[name])), weights[name].shape)
        weights["bias"].fill(0)
        weights["bias"][self.hidden : 2 * self.hidden] = 1

    def forward(self, weights: Tensors, saved: Saved, x: Array) -> Array:
        """Return y."""
        batch, steps, _ = x.shape
        gates = saved.array((steps, batch, 4 * self.hidden), x.dtype)
        cell = saved.array((steps + 1, batch, self.hidden), x.dtype)
        output = saved.array((steps + 1, batch, self.hidden), x.dtype)
        cell[0], output[0] = 0, 0
        np.matmul(x.swapaxes(0, 1), weights["weight"], out=gates)
        gates += weights["bias"]
        for step in range(steps):
            now = gates[step]
            now += output[step] @ weights["recurrent"]
            i, f, o, g = self._gates(now)
            logistic(now[:, : 3 * self.hidden], out=now[:, : 3 * self.hidden])
            np.tanh(g, out=g)
            np.add(f * cell[step], i * g, out=cell[step + 1])
            np.multiply(o, np.tanh(cell[step + 1]), out=output[step + 1])
        saved.values.update(x=x, gates=gates, cell=cell, output=output)
        return output[1:].swapaxes(0, 1).copy() if self.sequences else output[-1].copy()

    def backward(self, weights: Tensors, gradients: Tensors, saved: Saved, dy: Array) -> Any:
        """Return dx, by back-propagation through time."""
        x, gates, cell, output = (saved.values[name] for name in ("x", "gates", "cell", "output"))
        dgates = saved.array(gates.shape, gates.dtype)
        dh, dc = np.zeros_like(output[0]), np.zeros_like(cell[0])
        for step in reversed(range(len(gates))):
            if self.sequences:
                dh += dy[:, step]
            elif step == len(gates) - 1:
                dh += dy
            i, f, o, g = self._gates(gates[step])
            di, df, do, dg = self._gates(dgates[step])
            t = np.tanh(cell[step + 1])
            dc += dh * o * (1 - t * t)
            do[...] = dh * t * o * (1 - o)
            di[...] = dc * g * i * (1 - i)
            df[...] = dc * cell[step] * f * (1 - f)
            dg[...] = dc * i * (1 - g * g)
            dc *= f
            np.matmul(dgates[step], weights["recurrent"].T, out=dh)
        flat = dgates.reshape(-1, dgates.shape[-1])
        np.sum(flat, axis=0, out=gradients["bias"])
        np.matmul(output[:-1].reshape(-1, self.hidden).T, flat, out=gradients["recurrent"])
        rows = x.swapaxes(0, 1).reshape(-1, x.shape[-1])
        np.matmul(rows.T, flat, out=gradients["weight"])
        if not saved.wants_dx:
            return None
        return np.ascontiguousarray((dgates @ weights["weight"].T).swapaxes(0, 1))

    def _gates(self, of: Array) -> list[Array]:
        return [of[:, k * self.hidden : (k + 1) * self.hidden] for k in range(4)]
