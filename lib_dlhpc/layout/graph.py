"""The graph of one rank under construction: local layers, and the distribution of each output over the ranks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from lib_dlhpc.layout.cuts import Ranges, bounds, length
from lib_dlhpc.spec.model import Layer, Model

WHOLE = -1
WORDS = ("gather", "collect", "copy", "slice", "reduce", "loss")  # of exchanges


class ShardSpec(NamedTuple):
    """The distribution of one output over the ranks of a group: replicated, or ranges along an axis of a sample."""

    name: str  # of the local layer that gives it
    shape: tuple[int, ...]  # of the whole output
    axis: int = WHOLE
    ranges: tuple[Ranges, ...] = ()  # of each rank

    def same_split(self, other: "ShardSpec") -> bool:
        """Whether both are distributed alike."""
        return self.axis == other.axis and self.ranges == other.ranges

    def called(self, name: str) -> "ShardSpec":
        """Return an output of another layer with the same distribution."""
        return ShardSpec(name, self.shape, self.axis, self.ranges)


class RepeatedLayer(NamedTuple):
    """A local layer like that of an earlier block; whole: the layer it is of, if its own form states that.

    A prediction needs few stages of a deep network: layers are made for these alone.
    """

    like: Layer
    name: str
    inputs: tuple[str, ...]
    whole: Layer | None

    @property
    def likeness(self) -> int:
        """That of the layer."""
        return self.like.likeness

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Those of the layer, but for `whole`."""
        return self.like.attributes

    def made(self) -> Layer:
        """Return the layer."""
        whole = {"whole": self.whole} if self.whole is not None else {}
        return self.like.elsewhere(self.name, self.inputs, **whole)


def made(layer: Layer | RepeatedLayer) -> Layer:
    """Return a layer, made if it is not there yet."""
    return layer.made() if isinstance(layer, RepeatedLayer) else layer


@dataclass
class Graph:
    """The local layers of one rank so far. `homes` names the layer of the model each belongs with."""

    model: Model
    group: str  # "tensor" or "spatial"
    ranks: int
    rank: int
    layers: list[Layer | RepeatedLayer] = field(default_factory=list)
    homes: list[int] = field(default_factory=list)
    held: dict[str, ShardSpec] = field(default_factory=dict)
    converted: dict[tuple[str, str], ShardSpec] = field(default_factory=dict)
    """Outputs that were exchanged, by the local layer that gives them and the word of the exchange."""
    _names: set[str] = field(default_factory=set)  # of layers

    @cached_property
    def whole(self) -> frozenset[str]:
        """The local layers whose output every rank has all of; to be read once all layers are there."""
        every = (*self.held.values(), *self.converted.values())
        return frozenset(each.name for each in every if each.axis == WHOLE)

    def local_shape(self, held: ShardSpec) -> tuple[int, ...]:
        """Return the shape of this rank's shard of a sample."""
        if held.axis == WHOLE:
            return held.shape
        shape = list(held.shape)
        shape[held.axis] = length(held.ranges[self.rank])
        return tuple(shape)

    def distribution(self, name: str) -> tuple[Any, ...]:
        """Return all that a rule may read of an output: how it is distributed, and converted into what so far."""
        held = self.held[name]
        known = tuple([(word, each.axis) for word, each in self.conversions(held.name)])
        return name == "input", held.shape, held.axis, held.ranges, known

    def conversions(self, name: str) -> Iterator[tuple[str, ShardSpec]]:
        """Yield what a local layer's output was converted into so far, by word, and then what these were."""
        for word in WORDS:
            if (found := self.converted.get((name, word))) is not None:
                yield word, found
                yield from self.conversions(found.name)

    def append(
        self,
        home: int,
        inputs: tuple[ShardSpec, ...],
        gives: ShardSpec,
        share: float = 1.0,
        part: Mapping[str, tuple[int, tuple[Ranges, ...]]] | None = None,
        parameters: int | None = None,
        stored: int | None = None,
        sums: bool = False,
        **attributes: Any,
    ) -> ShardSpec:
        """Add the local form of layer `home`.

        share: of the layer's FLOP. part: the ranges of a parameter's axis on each rank. stored: elements stored for
        backward, if not those of the output. sums: each rank sees some positions, so gradients are reduced over the
        group.
        """
        whole = self.model.layers[home]
        output, size = self.local_shape(gives), prod(whole.output_shape)
        kept = prod(output) / size if size else 1.0
        changed: dict[str, Any] = {**whole.attributes, **attributes}
        if part:
            changed["part"] = {name: (axis, each[self.rank]) for name, (axis, each) in part.items()}
        if gives.axis != WHOLE:
            changed["elements"] = (gives.axis, gives.ranges[self.rank])
        if part or gives.axis != WHOLE:
            changed["whole"] = whole
        if sums and whole.parameters:
            changed["sum"] = (self.group,)
        local = Layer(  # dataclasses.replace would take longer than all the rest
            whole.name,
            whole.kind,
            tuple(source.name for source in inputs),
            self.local_shape(inputs[0]),
            output,
            whole.parameters if parameters is None else parameters,
            whole.forward_flop * share,
            round(whole.stored * kept) if stored is None else stored,
            round(whole.mask_bytes * kept),
            changed,
            whole.frozen,
            whole.narrow,
        )
        self.place(local, home)
        held = self.held[whole.name] = gives.called(whole.name)
        return held

    def repeat(self, home: int, known: Sequence[Layer]) -> None:
        """Add the local form of layer `home`, like that of a layer which is like it and reads what is split alike.

        known: what was added for that layer, each of which reads the one before.
        """
        whole, reads = self.model.layers[home], self.model.layers[home].inputs
        *before, local = known
        for each in before:
            name = whole.name + each.name.removeprefix(local.name)
            self.place(each.elsewhere(name, reads), home)
            reads = (name,)
        self.place(local.elsewhere(whole.name, reads, whole=whole), home)
        self.held[whole.name] = self.held[local.name].called(whole.name)

    def exchange(
        self,
        home: int,
        source: ShardSpec,
        gives: ShardSpec,
        word: str,
        forward: str,
        backward: str,
        axis: int,
        stored: int | None = None,
    ) -> ShardSpec:
        """Add a communication layer, once for each source and word."""
        if (source.name, word) in self.converted:
            return self.converted[source.name, word]
        # Consecutive ranges: of what is gathered, or of what is cut.
        cut = gives if gives.axis != WHOLE else source
        cuts = bounds(tuple(each[0] for each in cut.ranges)) if cut.axis != WHOLE else ()
        name = f"{self.model.layers[home].name}.{word}"
        if name in self._names:
            name = f"{name} of {source.name}"
        output = self.local_shape(gives)
        attributes = {
            "group": self.group,
            "forward": forward,
            "backward": backward,
            "axis": axis,
            "cuts": cuts,
            "rank": self.rank,
        }
        moved = prod(output) if forward in ("all_gather", "slice") else 0
        product = self.model.layers[home]
        paired = {forward, backward} == {"all_gather", "reduce_scatter"} and product.kind == "dense"
        layer = Layer(
            name,
            "exchange",
            (source.name,),
            self.local_shape(source),
            output,
            stored=moved if stored is None else stored,
            attributes=attributes,
            narrow=product.narrow if paired else "",
        )
        self.place(layer, home)
        made = self.converted[source.name, word] = gives.called(name)
        return made

    def added(self, start: int) -> list[Layer]:
        """Return the layers from a number on that rules have added."""
        return [layer for layer in self.layers[start:] if isinstance(layer, Layer)]

    def place(self, layer: Layer | RepeatedLayer, home: int) -> None:
        """Add a layer as it is."""
        self.layers.append(layer)
        self.homes.append(home)
        self._names.add(layer.name)
