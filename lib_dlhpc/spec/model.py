"""A network as data: a list of layers in execution order, each with exact counts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.layers import Layer as Layer
from lib_dlhpc.records import dataclass

BLOCK = re.compile(r"layer\d+\.")  # before the names of the layers of a transformer's block


@dataclass(frozen=True)
class Model:
    """A network: its layers in topological order, and the family and options that rebuild it.

    Sums are per sample; the `layer_*` arrays are read-only float64, in the order of `layers`. in_blocks: whether it is
    a part of a network of transformer blocks, even if it has none of them. scored: whether the loss follows its last
    layer, as of all but the early stages of a pipeline.
    """

    name: str
    layers: tuple[Layer, ...]
    input_shape: tuple[int, ...]
    family: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    in_blocks: bool = False
    scored: bool = True

    @cached_property
    def has_blocks(self) -> bool:
        """Whether a layer is in a block of a transformer."""
        return any(BLOCK.match(layer.name) for layer in self.layers if not layer.traits.stand_in)

    @cached_property
    def has_experts(self) -> bool:
        """Whether a layer is a mixture of experts."""
        return any(layer.has_experts for layer in self.layers)

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """The block that each layer is in, its name up to the last dot; "" if it is in none."""
        return tuple([layer.name.rpartition(".")[0] for layer in self.layers])

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """The numbers of the layers that read each output, "input" among them, in order; not of what none reads."""
        found: dict[str, list[int]] = {}
        for number, layer in enumerate(self.layers):
            for name in layer.inputs:
                if (known := found.get(name)) is None:
                    found[name] = [number]
                else:
                    known.append(number)
        return found

    @cached_property
    def parameters(self) -> int:
        """Learnable parameters; a tied weight counts once."""
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def trained(self) -> int:
        """Parameters that are trained: all, but for frozen layers."""
        return sum(layer.trained for layer in self.layers)

    @cached_property
    def forward_flop(self) -> float:
        """FLOP of the forward pass of one sample."""
        return float(sum(layer.forward_flop for layer in self.layers))

    @property
    def backward_flop(self) -> float:
        """FLOP of the backward pass of one sample: twice the forward pass, once where weights are frozen."""
        return float(sum(layer.backward_flop for layer in self.layers))

    @property
    def train_flop(self) -> float:
        """FLOP to train on one sample: forward and backward, without recomputation."""
        omitted = sum((2 - layer.gradients) * layer.forward_flop for layer in self.layers)
        return 3 * self.forward_flop - omitted

    @cached_property
    def stored(self) -> int:
        """Elements stored a sample for the backward pass, in the precision of the computation."""
        return sum(layer.stored for layer in self.layers)

    @cached_property
    def mask_bytes(self) -> int:
        """Bytes stored a sample for the backward pass, independent of the precision."""
        return sum(layer.mask_bytes for layer in self.layers)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the last layer's output for one sample."""
        return self.layers[-1].output_shape if self.layers else self.input_shape

    @cached_property
    def _kinds(self) -> tuple[list[Layer], NDArray[np.intp]]:
        """One layer of each likeness, and which of them each layer is like."""
        likeness = [layer.likeness for layer in self.layers]
        kinds = dict(zip(likeness, self.layers, strict=True))
        number = {like: number for number, like in enumerate(kinds)}
        return [*kinds.values()], np.array([number[like] for like in likeness], np.intp)

    def column(self, value: Callable[[Layer], Any]) -> NDArray[np.float64]:
        """Return a value of each layer, shape [layers], that is the same of layers which are alike."""
        kinds, kind = self._kinds
        return _read_only(np.array([value(layer) for layer in kinds], dtype=np.float64)[kind])

    @cached_property
    def layer_parameters(self) -> NDArray[np.float64]:
        """Learnable parameters of each layer, shape [layers]."""
        return self.column(attrgetter("parameters"))

    @cached_property
    def layer_trained(self) -> NDArray[np.float64]:
        """Parameters of each layer that are trained, shape [layers]."""
        return self.column(attrgetter("trained"))

    @cached_property
    def layer_gradients(self) -> NDArray[np.float64]:
        """Gradients of each layer's backward pass, each the work of its forward pass, shape [layers]."""
        return self.column(attrgetter("gradients"))

    @cached_property
    def layer_forward_flop(self) -> NDArray[np.float64]:
        """Forward FLOP a sample of each layer, shape [layers]."""
        return self.column(attrgetter("forward_flop"))

    @cached_property
    def layer_stored(self) -> NDArray[np.float64]:
        """Elements stored a sample at each layer, shape [layers]."""
        return self.column(attrgetter("stored"))

    @cached_property
    def layer_mask_bytes(self) -> NDArray[np.float64]:
        """Bytes stored a sample at each layer, independent of the precision, shape [layers]."""
        return self.column(attrgetter("mask_bytes"))

    @cached_property
    def layer_input_elements(self) -> NDArray[np.float64]:
        """Elements each layer reads a sample, summed over its inputs, shape [layers]."""
        size = self.output_elements
        return _read_only([sum([size[name] for name in layer.inputs]) for layer in self.layers])

    @cached_property
    def output_elements(self) -> dict[str, int]:
        """Elements of a sample of each output, by the name of the layer; "input": of the samples themselves."""
        size = {layer.name: prod(layer.output_shape) for layer in self.layers}
        return {**size, "input": prod(self.input_shape)}

    @cached_property
    def reads_samples(self) -> bool:
        """Whether a layer reads the samples."""
        return any("input" in layer.inputs for layer in self.layers)

    @property
    def reads_tokens(self) -> bool:
        """Whether samples are sequences of tokens."""
        return self.layers[0].kind == "embedding"

    @cached_property
    def layer_output_elements(self) -> NDArray[np.float64]:
        """Elements each layer writes a sample, shape [layers]."""
        return self.column(lambda layer: prod(layer.output_shape))

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.family, self.input_shape, len(self.layers), self.parameters))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        size = _short(self.parameters).replace("G", "billion")
        return (
            f"Model({self.name}: {len(self.layers)} layers, {size} parameters, "
            f"{_short(self.forward_flop)}FLOP forward per sample)"
        )


def _read_only(values: Any) -> NDArray[np.float64]:
    column = np.array(values, dtype=np.float64)
    column.setflags(write=False)
    return column


def _short(value: float) -> str:
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.4g} {prefix}"
    return f"{value:.4g} "
