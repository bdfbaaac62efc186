"""Network: a Model that can be trained, with all its weights in one array and all gradients in another.

A gradient bucket is then a slice. Weights stand in the order of the layers, so backward, which runs from
the last layer to the first, completes the array of gradients from its end to its start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.model import Model
from lib_dlhpc.train.layers import KINDS, Context, Kept
from lib_dlhpc.train.layers.kept import Array, Shapes, Tensors

# What these give, they do not need again: a layer that is its only reader may overwrite it.
OVERWRITABLE = (
    "conv",
    "dense",
    "batch_norm",
    "layer_norm",
    "add",
    "embedding",
    "position_embedding",
)


@dataclass(frozen=True)
class Parameter:
    """Where one tensor of weights lies."""

    name: str  # "conv1.weight"
    layer: int
    start: int
    stop: int
    shape: tuple[int, ...]
    decays: bool  # biases, scales and shifts take neither weight decay nor a rate of their own


class Network:
    """The layers of a model, its weights, gradients and running statistics: one flat array each.

    dtype: np.float32 or np.float64. seed: of the first weights. Raises SpecError for layers that can be
    priced but not trained.
    """

    def __init__(self, model: Model, dtype: Any = np.float32, seed: int = 0) -> None:
        self.model, self.dtype = model, np.dtype(dtype)
        _check(model)
        self.layers = [KINDS[layer.kind](layer) for layer in model.layers]
        self.context = Context(seed=seed)
        self.kept = [Kept(self.context, *flags) for flags in _readers(model)]
        self.parameters = self._parameters()
        size = self.parameters[-1].stop if self.parameters else 0
        self.weights, self.gradients = np.zeros(size, self.dtype), np.zeros(size, self.dtype)
        self._weights, self._gradients = self._views(self.weights), self._views(self.gradients)
        self.statistics = self._statistics()
        self.start(seed)

    def start(self, seed: int) -> None:
        """Fill in the first weights; each layer has random numbers of its own."""
        for index, layer in enumerate(self.layers):
            if hasattr(layer, "start"):
                layer.start(self._weights[index], np.random.default_rng([seed, index]))

    def forward(self, x: Array, training: bool = True) -> Array:
        """Return the last layer's output. x: (batch, *input_shape), samples first."""
        self.context.training = training
        if len(self.model.input_shape) >= 3:
            x = np.ascontiguousarray(np.moveaxis(x, 0, -1))
        outputs = {"input": x}
        for index, layer in enumerate(self.model.layers):
            read = [outputs[name] for name in layer.inputs]
            outputs[layer.name] = self.layers[index].forward(
                self._weights[index], self.kept[index], *read
            )
        return outputs[self.model.layers[-1].name]

    def backward(self, dy: Array, done: Callable[[int], None] = lambda start: None) -> None:
        """Write all gradients of the batch that forward saw last; dy is overwritten.

        done(start): called whenever gradients[start:] is complete.
        """
        if self._tied:
            self.gradients.fill(0)
        last = self.model.layers[-1].name
        pending: dict[str, Array] = {last: dy}
        start = len(self.gradients)
        for index in reversed(range(len(self.layers))):
            layer = self.model.layers[index]
            dx = self.layers[index].backward(
                self._weights[index],
                self._gradients[index],
                self.kept[index],
                pending.pop(layer.name),
            )
            for name, part in zip(
                layer.inputs, dx if isinstance(dx, tuple) else (dx,), strict=True
            ):
                if name == "input" or part is None:
                    continue
                if name in pending:
                    pending[name] += part
                else:
                    pending[name] = part
            if self._first[index] < start:
                start = self._first[index]
                done(start)

    def _parameters(self) -> list[Parameter]:
        found, place = [], 0
        self._first = []
        for index, layer in enumerate(self.layers):
            self._first.append(place)
            for name, shape in getattr(layer, "shapes", {}).items():
                stop = place + prod(shape)
                full = f"{self.model.layers[index].name}.{name}"
                decays = name in ("weight", "recurrent")
                found.append(Parameter(full, index, place, stop, shape, decays))
                place = stop
        return found

    def _views(self, flat: Array) -> list[Tensors]:
        """Return the tensors of each layer as views of `flat`; a tied layer sees those of its owner."""
        views: list[Tensors] = [{} for _ in self.layers]
        for parameter in self.parameters:
            part = flat[parameter.start : parameter.stop].reshape(parameter.shape)
            views[parameter.layer][parameter.name.rpartition(".")[2]] = part
        places = {layer.name: index for index, layer in enumerate(self.model.layers)}
        self._tied = False
        for index, layer in enumerate(self.model.layers):
            owner = layer.attributes.get("tied")
            if owner:
                views[index]["weight"] = views[places[owner]]["weight"]
                self.layers[places[owner]].tied = self._tied = True
        return views

    def _statistics(self) -> Array:
        """Return the running statistics of all layers as one array, which the layers update."""
        wanted: list[tuple[Any, Shapes]] = [
            (layer, layer.statistics) for layer in self.layers if hasattr(layer, "statistics")
        ]
        flat = np.zeros(sum(prod(s) for _, shapes in wanted for s in shapes.values()), self.dtype)
        place = 0
        for layer, shapes in wanted:
            for name, shape in shapes.items():
                layer.running[name] = flat[place : place + prod(shape)].reshape(shape)
                place += prod(shape)
        return flat


def _check(model: Model) -> None:
    for layer in model.layers:
        if layer.kind not in KINDS:
            raise SpecError(
                f"{layer.name}: a {layer.kind} layer can be priced but not trained; trainable kinds:"
                f" {', '.join(KINDS)}."
            )
        if layer.kind in ("conv", "max_pool", "avg_pool") and len(layer.input_shape) < 3:
            raise SpecError(
                f"{layer.name}: trained over 2 or 3 dimensions of space; its input is"
                f" {layer.input_shape}."
            )


def _readers(model: Model) -> list[tuple[bool, bool]]:
    """Return for each layer whether it may overwrite its input, and whether its gradient is wanted."""
    readers: dict[str, int] = {}
    for layer in model.layers:
        for name in layer.inputs:
            readers[name] = readers.get(name, 0) + 1
    kinds = {layer.name: layer.kind for layer in model.layers}
    flags = []
    for layer in model.layers:
        (source, *others) = layer.inputs
        alone = not others and readers[source] == 1 and kinds.get(source) in OVERWRITABLE
        flags.append((alone, any(name != "input" for name in layer.inputs)))
    return flags
