"""What one device of a replica holds and computes: the layers of one token, and the cache of keys and values.

A network of one token is the model with a sequence of 1, split over the devices as in training (layout/tensor.py). Its
attention has no work of its own there: what it does depends on the tokens before, see price.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from lib_dlhpc.costs.exchanges import weights_read
from lib_dlhpc.costs.groups import GOALS
from lib_dlhpc.costs.roofline import BYTES
from lib_dlhpc.errors import SpecError
from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout.graph import made
from lib_dlhpc.layout.tensor import split_tensors
from lib_dlhpc.serving.kv_cache import AttentionKind, attention_kinds, reads_context
from lib_dlhpc.serving.service import STATE_SPACE, WIDTH, Service, is_attention
from lib_dlhpc.serving.wide_experts import sharded
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.spec.networks import build

MODULE = "mtp"  # of the names of a module's layers, the first ones among them


class Exchange(NamedTuple):
    """A collective of the replica's devices: its goal, elements a token, and whether it is of the logits."""

    goal: str
    elements: int
    logits: bool


@dataclass(frozen=True)
class Shard:
    """A device's part of a service.

    model: its layers for one token; parameters are counted in elements of the size of activations. head: index of the
    first layer that only the last token of a prompt needs. weights: bytes. precision: of activations.
    """

    model: Model
    head: int
    weights: float
    attention: tuple[AttentionKind, ...]
    exchanges: tuple[Exchange, ...]
    precision: str

    def kv_cache_bytes(self, tokens: int) -> float:
        """Return the bytes of the cache of a sequence with this number of tokens."""
        return sum(kind.cache_bytes(tokens) for kind in self.attention)

    @property
    def widest(self) -> int:
        """Elements a token of the widest layer's input and output, logits apart."""
        model = self.model
        moved = model.layer_input_elements + model.layer_output_elements
        return int(max(moved[: self.head]))

    @property
    def logits(self) -> int:
        """Elements of a token's logits on this device."""
        return prod(self.model.layers[self.head].output_shape)


def shard_of(service: Service, module: bool = False) -> Shard:
    """Return what the first device of a replica holds; raises SpecError for a model that cannot be split so.

    module: of the modules that predict further tokens, which share the tables of the model; else all but these.
    """
    model, serving = service.model, service.service
    key, group = Keyed(model, id(model)), (serving.experts, serving.redundant)
    return _shard(key, serving.devices, serving.precision, serving.cache_precision, group, module)


@lru_cache(maxsize=16)
def _shard(
    of: Keyed[Model], devices: int, weight: str, cache: str, group: tuple[int, int], module: bool
) -> Shard:
    model = of.value
    one = _of_one_token(model, devices)
    layers: tuple[Layer, ...] = sharded(one.layers, *group)
    if devices > 1:
        layers = tuple(map(made, split_tensors(one, devices, 0, "paired", False).layers))
    precision, width = activations(weight), WIDTH[weight]
    local = _inference(replace(one, layers=layers), width / BYTES[precision])
    layers, local = (_without_modules(each, module) for each in (layers, local))
    head = max(index for index, layer in enumerate(layers) if layer.kind == "dense")
    exchanges = tuple(_exchanges(layers, head))
    weights = width * sum(layer.parameters for layer in layers)
    attention = attention_kinds(model, WIDTH[cache], layers)
    one = replace(one, layers=local)
    return Shard(one, head, weights, attention, exchanges, precision)


def _without_modules(layers: tuple[Layer, ...], module: bool) -> tuple[Layer, ...]:
    """Return the layers before the modules of multi-token prediction, or from them on, which come last.

    A module reads the model's last state. Its first layer, the rows of words, is as wide, and named in its place.
    """
    first = next(
        (index for index, layer in enumerate(layers) if layer.name.startswith(MODULE)), len(layers)
    )
    if not module:
        return layers[:first]
    own = {"input", *(layer.name for layer in layers[first:])}
    words = layers[first].name
    return tuple(
        replace(layer, inputs=tuple(name if name in own else words for name in layer.inputs))
        for layer in layers[first:]
    )


def activations(precision: str) -> str:
    """Return the precision of activations, for weights of some precision: at least 16 bits."""
    return precision if WIDTH[precision] > 1 else "bf16"


def _of_one_token(model: Model, devices: int) -> Model:
    """Return the model with a sequence of 1, and a head of keys and values for each device."""
    options: dict[str, Any] = {**model.options, "sequence": 1}
    holder = options
    if isinstance(options.get("attention"), Mapping):
        holder = options["attention"] = dict(options["attention"])
    seen = next((layer.attributes for layer in model.layers if is_attention(layer.kind)), {})
    heads, keys = seen.get("heads", devices), seen.get("kv_heads", devices)
    if heads % devices:
        legal = ", ".join(str(degree) for degree in range(1, heads + 1) if heads % degree == 0)
        raise SpecError(
            f"service.devices = {devices}: must divide the {heads} heads of {model.name or 'the model'}; legal:"
            f" {legal}."
        )
    if keys < devices:
        if devices % keys:
            raise SpecError(
                f"service.devices = {devices}: {keys} heads of keys and values cannot be copied evenly to these"
                f" devices; legal: multiples of {keys} that divide {heads}."
            )
        holder["kv_heads"] = devices  # each head is copied to devices / keys of them
    return build(model.family, options, name=model.name)


def _inference(model: Model, width: float) -> tuple[Layer, ...]:
    """Return layers that store nothing for backward, read tied weights, and leave attention to price.py.

    width: of a weight, relative to an activation.
    """
    return tuple(
        replace(
            layer,
            parameters=0 if layer.traits.lookup else round(read * width),
            forward_flop=0.0 if reads_context(layer) else layer.forward_flop,
            stored=0,
            mask_bytes=0,
            attributes=_stateless(layer),
        )
        for layer, read in zip(model.layers, weights_read(model), strict=True)
    )


def _exchanges(layers: tuple[Layer, ...], head: int) -> Iterator[Exchange]:
    for index, layer in enumerate(layers):
        forward = layer.attributes.get("forward") if layer.kind == "exchange" else None
        if forward in GOALS:
            whole = max(prod(layer.input_shape), prod(layer.output_shape))
            yield Exchange(GOALS[forward], whole, index > head)
        elif forward == "log_softmax":  # here the logits themselves are wanted
            ranks = len(layer.attributes["cuts"]) - 1
            yield Exchange("allgather", ranks * prod(layer.input_shape), True)


def _stateless(layer: Layer) -> Mapping[str, Any]:
    """Return the attributes of a layer; a state is moved as often as `AttentionKind` says, not with each token."""
    if layer.kind != STATE_SPACE:
        return layer.attributes
    return {**layer.attributes, "state": 0}
