"""A builder of layer lists: infers shapes and counts parameters, FLOP and stored activations.

One convention defines what is stored for the backward pass. Convolutions, dense layers,
normalizations, sums, pools and concatenations store their output. ReLU, leaky ReLU, tanh, sigmoid
and dropout work in place on their input. GELU and PReLU need both input and output. A dropout
stores a mask of one byte an element.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import islice
from math import prod
from typing import Any

from lib_dlhpc.errors import SpecError, suggest
from lib_dlhpc.layers import KINDS, Counts, Layer, Site
from lib_dlhpc.spec.model import Model

MOST_LAYERS = 100_000  # thirty times ResNet-1001: more is a typing error


class Builder:
    """A network under construction.

    Each kind of layer is a method that appends one layer and returns its name: `net.conv(64, 3, after="relu1")`. Its
    options are those of `describe` in the kind's file. It reads the last layer, or the one that `after` names; a sum,
    a concatenation and experts name theirs in `inputs`. Shapes are per sample, channels first. The default name of
    a layer is its kind, numbered within the enclosing block: "stage1.block2.conv3".
    Methods raise SpecError if a layer does not fit its input.
    """

    def __init__(self, *input_shape: int) -> None:
        self.input_shape = input_shape
        self.last = "input"
        self._layers: dict[str, Layer] = {}
        # Layers by all that they follow from: those of repeated blocks are described once.
        self._known: dict[tuple[Any, ...], Layer] = {}
        self._scope = ""
        self._numbers: dict[str, int] = {}

    def model(self, name: str, family: str = "", options: Mapping[str, Any] | None = None) -> Model:
        """Return the finished network."""
        layers = tuple(self._layers.values())
        return Model(name, layers, self.input_shape, family or name, dict(options or {}))

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Prefix the names of layers appended inside with `name` and a dot."""
        outer, self._scope = self._scope, f"{self._scope}{name}."
        try:
            yield
        finally:
            self._scope = outer

    def blocks(self, count: int) -> Iterator[None]:
        """Yield inside each of `count` blocks "layer1", "layer2", ..., which return the shape that they read.

        They are equal but for what the first reads, so those after the second are copied from it as soon as that ends.
        """
        for number in range(1, min(count, 2) + 1):
            start = len(self._layers)
            with self.block(f"layer{number}"):
                yield
        copied = [*islice(self._layers.values(), start, None)] if count > 2 else []
        for number in range(3, count + 1):
            new = {f"layer{1 + before}": f"layer{number - 1 + before}" for before in (0, 1)}
            for layer in copied:
                name, *inputs = [_in_block(each, new) for each in (layer.name, *layer.inputs)]
                self._add(layer.elsewhere(name, tuple(inputs)))

    def shape(self, after: str = "") -> tuple[int, ...]:
        """Return the output shape of a layer: the last one, or the one that `after` names."""
        source = after or self.last
        if source == "input":
            return self.input_shape
        if source not in self._layers:
            legal = ["input", *self._layers]
            raise SpecError(
                f"layer {source!r} does not exist before its use.{suggest(source, legal)}"
                f" Legal: {', '.join(legal[-8:])}."
            )
        return self._layers[source].output_shape

    def __getattr__(self, kind: str) -> Callable[..., str]:
        if kind not in KINDS or not hasattr(KINDS[kind], "describe"):
            raise AttributeError(f"a network has no layer of kind {kind!r}")
        return partial(self._several if KINDS[kind].several_inputs else self._one, kind)

    def _one(self, kind: str, *options: Any, name: str = "", after: str = "", **more: Any) -> str:
        return self._append(kind, name, (after or self.last,), *options, **more)

    def _several(
        self, kind: str, inputs: tuple[str, ...], *options: Any, name: str = "", **more: Any
    ) -> str:
        return self._append(kind, name, inputs, *options, **more)

    def _append(
        self, kind: str, name: str, inputs: tuple[str, ...], *options: Any, **more: Any
    ) -> str:
        name = self._name(kind, name)
        shapes = tuple([self.shape(source) for source in inputs])
        like = _letters(self._scope), name[len(self._scope) :], kind, shapes, options, *more.items()
        if (known := self._known.get(like)) is not None:
            layer = known.elsewhere(name, inputs)
        else:
            site = Site(name, shapes, self._layers)
            counts = KINDS[kind].describe(site, *options, **more)
            layer = self._known[like] = _layer(site, kind, inputs, counts)
        return self._add(layer)

    def _add(self, layer: Layer) -> str:
        if len(self._layers) == MOST_LAYERS:
            raise SpecError(f"{layer.name}: a network has at most {MOST_LAYERS:,} layers.")
        self._layers[layer.name], self.last = layer, layer.name
        return layer.name

    def _name(self, kind: str, name: str) -> str:
        if not name:
            number = self._numbers[self._scope + kind] = (
                self._numbers.get(self._scope + kind, 0) + 1
            )
            name = f"{kind}{number}"
        name = self._scope + name
        if name in self._layers or name == "input":
            raise SpecError(f"two layers are called {name!r}; give each its own name.")
        return name


def _layer(site: Site, kind: str, inputs: tuple[str, ...], counts: Counts) -> Layer:
    stored = prod(counts.output) if counts.stored is None else counts.stored
    return Layer(
        site.name,
        kind,
        inputs,
        site.shape,
        counts.output,
        counts.parameters,
        counts.forward_flop,
        stored,
        counts.mask_bytes,
        counts.attributes,
    )


def _in_block(name: str, new: Mapping[str, str]) -> str:
    """Return the name of a layer with that of its block replaced; new: names of blocks."""
    block, dot, own = name.partition(".")
    return new.get(block, block) + dot + own


@lru_cache(maxsize=1024)
def _letters(scope: str) -> str:
    return re.sub(r"\d+", "", scope)
