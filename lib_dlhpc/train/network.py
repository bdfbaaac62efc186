"""Network: a Model that can be trained, with all its weights in one array and all gradients in another.

A gradient bucket is then a slice. Weights stand in the order of the layers, so backward, which runs from
the last layer to the first, completes the array of gradients from its end to its start.
"""

from collections import deque
from collections.abc import Callable, Iterator
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

# How many dimensions a sample may have, where a layer cannot take any number of them.
DIMENSIONS = {
    "attention": (2,),
    "avg_pool": (3,),
    "batch_norm": (1, 3),
    "conv": (3,),
    "embedding": (1,),
    "global_avg_pool": (3,),
    "layer_norm": (1, 2),
    "lstm": (2,),
    "max_pool": (3,),
    "position_embedding": (2,),
}
SHAPES = {
    1: "one row of features",
    2: "(positions, features)",
    3: "channels with 2 or 3 dimensions of space",
}


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
        check_layers(model)
        self.layers = [KINDS[layer.kind](layer) for layer in model.layers]
        self.context = Context(seed=seed)
        self.kept = [Kept(self.context, *flags) for flags in _readers(model)]
        self._read_last = _last_reads(model)
        self._ready = False  # for backward
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
        """Return the last layer's output, samples first; it is the caller's until the next forward.

        x: (batch, *input_shape); only read, but backward reads it again, so leave it until then.
        """
        self.context.training = self._ready = training
        last = self.model.layers[-1]
        (y,) = deque(self._outputs(x), maxlen=1)
        if last.kind not in OVERWRITABLE:  # losses write their gradient where the output was
            y = y.copy()
        return np.moveaxis(y, -1, 0) if len(last.output_shape) >= 3 else y

    def backward(self, dy: Array, done: Callable[[int], None] = lambda start: None) -> None:
        """Write all gradients of the batch that forward saw last; dy is overwritten.

        done(start): called whenever gradients[start:] is complete.
        Raises RuntimeError after a forward pass in evaluation, which keeps nothing, and when called twice.
        """
        if not self._ready:
            raise RuntimeError(
                "backward needs a forward pass in training; the last one evaluated, or has had its backward."
            )
        self._ready = False
        if self._tied:
            self.gradients.fill(0)
        last = self.model.layers[-1]
        if len(last.output_shape) >= 3:
            dy = np.ascontiguousarray(np.moveaxis(dy, 0, -1))
        pending = {last.name: dy}
        del dy
        start = len(self.gradients)
        for index in reversed(range(len(self.layers))):
            self._back(index, pending)
            if self._first[index] < start:
                start = self._first[index]
                done(start)

    def first_without_numbers(self, x: Array) -> str:
        """Return the first layer whose output holds infinity or no number, or what else is wrong."""
        for layer, y in zip(self.model.layers, self._outputs(x), strict=True):
            if not np.isfinite(y).all():
                return f"{layer.name} ({layer.kind})"
        return "the loss"

    def _outputs(self, x: Array) -> Iterator[Array]:
        """Yield the output of each layer, and let go of what no layer will read any more."""
        self.context.room.begin((x.shape, self.context.training))
        images = len(self.model.input_shape) >= 3
        outputs = {"input": np.moveaxis(x, 0, -1) if images else x}
        for index, layer in enumerate(self.model.layers):
            kept = self.kept[index]
            outputs[layer.name] = self.layers[index].forward(
                self._weights[index], kept, *(outputs[name] for name in layer.inputs)
            )
            if not self.context.training:
                kept.values.clear()
            for name in self._read_last[index]:
                del outputs[name]
            yield outputs[layer.name]

    def _back(self, index: int, pending: dict[str, Array]) -> None:
        """Take one layer's gradient out of `pending`, and add what it gives to those of its inputs."""
        inputs, kept = self.model.layers[index].inputs, self.kept[index]
        dx = self.layers[index].backward(
            self._weights[index],
            self._gradients[index],
            kept,
            pending.pop(self.model.layers[index].name),
        )
        kept.values.clear()
        for name, part in zip(inputs, dx if isinstance(dx, tuple) else (dx,), strict=True):
            if name == "input" or part is None:
                continue
            if name in pending:
                pending[name] += part
            else:
                pending[name] = part

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


def check_layers(model: Model) -> None:
    """Raise SpecError, without much work, for layers that can be priced but not trained."""
    read = {name for layer in model.layers for name in layer.inputs}
    layers = {layer.name: layer for layer in model.layers}
    for layer in model.layers:
        if layer.kind not in KINDS:
            raise SpecError(
                f"{layer.name}: a {layer.kind} layer can be priced but not trained; trainable kinds:"
                f" {', '.join(KINDS)}."
            )
        legal = DIMENSIONS.get(layer.kind)
        if legal and min(len(layer.input_shape), 3) not in legal:
            raise SpecError(
                f"{layer.name}: a layer of kind {layer.kind} is trained on samples of"
                f" {' or '.join(SHAPES[count] for count in legal)}; its input is"
                f" {layer.input_shape}."
            )
        if layer.kind == "embedding" and layer.inputs != ("input",):
            raise SpecError(
                f"{layer.name}: reads {layer.inputs[0]}; to be trained it must read the samples' own"
                " whole numbers, 'input'."
            )
        owner = layers.get(layer.attributes.get("tied", ""))
        features = layer.input_shape[-1]
        if owner and (owner.kind != "embedding" or owner.attributes["features"] != features):
            raise SpecError(
                f"{layer.name}: tied = {owner.name!r} is a layer of kind {owner.kind} and output"
                f" {owner.output_shape}; to be trained it must be an embedding of {features}"
                " features."
            )
        if layer.name not in read and layer is not model.layers[-1]:
            raise SpecError(
                f"{layer.name}: no layer reads its output, so it cannot be trained; only the last"
                f" layer, {model.layers[-1].name}, may go unread."
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


def _last_reads(model: Model) -> list[list[str]]:
    """Return for each layer the outputs that no later layer reads."""
    last = {name: index for index, layer in enumerate(model.layers) for name in layer.inputs}
    return [[name for name in last if last[name] == index] for index in range(len(model.layers))]
