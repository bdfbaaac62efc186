"""A stage of a small network for a lab's pipeline: dense layers, tanh between them, a loss at the end.

It saves a reference to the input of forward, not a copy: writing to it before backward of the same microbatch
would silently change gradients. Such writes are recorded here.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lib_dlhpc.labs.mistakes import LabError
from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.training.loss import softmax_cross_entropy


class _Pass(NamedTuple):
    """What a forward pass saves."""

    inputs: list[Array]  # of each layer; the first is what was given
    was: Array  # a copy of the first
    output: Array


class Stage:
    """Layers of one rank. weights, gradients: flat arrays.

    number, stages: index of the stage, number of stages. x, y: microbatches of samples and labels.
    samples: of each microbatch. width: numbers for each sample of a received "activation" and of a
    received "gradient". done: ("forward" or "backward", microbatch) in the order of the calls.
    overwritten: microbatches whose input was modified between forward and backward.
    """

    def __init__(self, widths: Sequence[int], number: int, cut: Sequence[int], seed: int) -> None:
        """widths: of the full network. cut: bounds of the stages, in layers."""
        self.number, self.stages = number, len(cut) - 1
        self.first, self.last = number == 0, number == self.stages - 1
        first, stop = cut[number], cut[number + 1]
        own = widths[first : stop + 1]
        self.width = {"activation": own[0], "gradient": own[-1]}
        shapes = list(pairwise(own))
        size = sum(a * b + b for a, b in shapes)
        self.weights, self.gradients = np.zeros(size), np.zeros(size)
        self._weights, self._gradients = (
            _views(self.weights, shapes),
            _views(self.gradients, shapes),
        )
        for layer, (w, _) in enumerate(self._weights, first):
            w[...] = np.random.default_rng([seed, layer]).normal(0, 1 / np.sqrt(len(w)), w.shape)
        self._tanh = [layer < len(widths) - 2 for layer in range(first, stop)]
        self._kept: dict[int, _Pass] = {}
        self.done: list[tuple[str, int]] = []
        self.overwritten: list[int] = []
        self.load([], [])

    def load(self, x: Sequence[Array], y: Sequence[Array]) -> None:
        """Load the microbatches of the next step."""
        self._x, self._y = x, y
        self.samples = [len(labels) for labels in y]
        self._kept.clear()
        self.done.clear()

    def forward(self, microbatch: int, x: Any = None) -> Array:
        """Return the outputs for a microbatch. x: from the previous stage; the first stage reads its samples."""
        given = self._x[microbatch] if self.first else self._right(x, microbatch, "activation")
        inputs, value = [], given
        for (w, b), tanh in zip(self._weights, self._tanh, strict=True):
            inputs.append(value)
            value = value @ w + b
            if tanh:
                value = np.tanh(value)
        self._kept[microbatch] = _Pass(inputs, given.copy(), value)
        self.done.append(("forward", microbatch))
        return value.copy()  # the caller may write to it

    def backward(self, microbatch: int, dy: Any, samples: int) -> tuple[float, Array]:
        """Compute the gradients of a microbatch; return its part of the loss, and the gradient of its inputs.

        dy: of the outputs, from the next stage; the last stage uses the loss instead, a sum over the
        microbatch divided by `samples`. The part of the loss is 0 on other stages.
        """
        if microbatch not in self._kept:
            raise LabError(
                f"backward of microbatch {microbatch}: its forward has not run yet, or its "
                "backward has already run."
            )
        inputs, was, output = self._kept.pop(microbatch)
        if not np.array_equal(inputs[0], was, equal_nan=True):
            self.overwritten.append(microbatch)
        value = 0.0
        if self.last:
            value, dy = softmax_cross_entropy(output.copy(), self._y[microbatch], samples)
        else:
            dy = self._right(dy, microbatch, "gradient")
        outputs = [*inputs[1:], output]
        for layer in reversed(range(len(inputs))):
            if self._tanh[layer]:
                dy = dy * (1 - outputs[layer] ** 2)
            w, _ = self._weights[layer]
            dw, db = self._gradients[layer]
            np.matmul(inputs[layer].T, dy, out=dw)
            np.sum(dy, axis=0, out=db)
            dy = dy @ w.T
        self.done.append(("backward", microbatch))
        return value, dy

    def _right(self, given: Any, microbatch: int, what: str) -> Array:
        """Return `given` if its shape is right. Raises LabError."""
        shape = self.samples[microbatch], self.width[what]
        if not isinstance(given, np.ndarray) or given.shape != shape:
            found = f"shape {given.shape}" if isinstance(given, np.ndarray) else repr(given)
            raise LabError(
                f"rank {self.number}: the {what} of microbatch {microbatch}: expected shape {shape},"
                f" got {found}."
            )
        return given


def _views(flat: Array, shapes: list[tuple[int, int]]) -> list[tuple[Array, Array]]:
    """Return weight and bias of each layer as views of `flat`."""
    views, place = [], 0
    for rows, columns in shapes:
        middle, stop = place + rows * columns, place + rows * columns + columns
        views.append((flat[place:middle].reshape(rows, columns), flat[middle:stop]))
        place = stop
    return views
