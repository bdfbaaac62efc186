"""The stages of a network on one rank, each made when it is asked for.

A deep pipeline has hundreds of stages of a few kinds. What kind a stage is of follows from a number for each of its
layers and from what crosses its edges, so that one stage of each kind is made.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np

from lib_dlhpc.layout.graph import Graph, RepeatedLayer, made
from lib_dlhpc.layout.part import Part
from lib_dlhpc.layout.scatter_gather import in_parts
from lib_dlhpc.spec.model import Layer, Model


class RankLayers:
    """The layers of a network as a rank has them, before they are cut into stages; graph: where layers are split."""

    def __init__(self, model: Model, graph: Graph | None) -> None:
        self.model, self.graph = model, graph
        self.layers: list[Layer | RepeatedLayer] = [*model.layers]
        self.homes: Sequence[int] = range(len(model.layers))
        self.input_shape = model.input_shape
        if graph is not None:
            self.layers, self.homes = graph.layers, graph.homes
            self.input_shape = graph.local_shape(graph.held["input"])
        self._at = {layer.name: number for number, layer in enumerate(self.layers)}
        self._prefixes = [layer.name.rpartition(".")[0] for layer in self.layers]
        last = {name: number for number, layer in enumerate(self.layers) for name in layer.inputs}
        # The last layer that reads the output of each.
        self._last = np.array([last.get(layer.name, -1) for layer in self.layers])
        known = dict[Hashable, int]()
        rows = [known.setdefault(kind, len(known)) for kind in self._kinds()]
        self._rows = np.array(rows, np.int64)
        self._crossing: dict[int, tuple[int, ...]] = {}
        self._edges: dict[int, Hashable] = {}

    def _kinds(self) -> Iterator[Hashable]:
        """Yield what each layer is, but for names: that of its block may be another than that of the layer before."""
        at, before = self._at, None
        for number, (layer, block) in enumerate(zip(self.layers, self._prefixes, strict=True)):
            sources = [number - at[name] if name in at else name for name in layer.inputs]
            yield layer.likeness, block != before, *sources
            before = block

    def crossing(self, at: int) -> tuple[int, ...]:
        """Return the layers before a place whose outputs are read from there on."""
        if at not in self._crossing:
            self._crossing[at] = tuple(np.flatnonzero(self._last[:at] >= at).tolist())
        return self._crossing[at]

    def _edge(self, at: int) -> Hashable:
        """Return what crosses a place, but for names."""
        if at not in self._edges:
            names = [self.layers[number].name for number in self.crossing(at)]
            whole = self.graph.whole if self.graph is not None else ()
            crossing = [(at - n, self.layers[n].likeness) for n in self.crossing(at)]
            prefixes = [self._prefixes[n] for n in (*self.crossing(at), at) if n < len(self.layers)]
            begins = [one != other for one, other in pairwise(prefixes)]
            self._edges[at] = *crossing, *begins, *[name in whole for name in names]
        return self._edges[at]

    def likeness(self, start: int, stop: int) -> Hashable:
        """Return what a stage of some layers is, but for the names of its layers and whose weights it shares."""
        ends = stop == len(self.layers)
        return self._rows[start:stop].tobytes(), self._edge(start), self._edge(stop), ends

    @cached_property
    def tied(self) -> dict[str, list[int]]:
        """The layers that have the same weights, by the name of the first."""
        tied = [each.attributes.get("tied") for each in self.layers]
        found = {name: [self._at[name]] for name in tied if name in self._at}
        for number, name in enumerate(tied):
            if name in found:
                found[name].append(number)
        return {name: sorted(numbers) for name, numbers in found.items()}

    def layer(self, number: int) -> Layer:
        """Return a layer, made when it is first asked for."""
        layer = self.layers[number] = made(self.layers[number])
        return layer

    def table(self, name: str) -> Layer:
        """Return the weights of a layer alone."""
        owner = self.layer(self._at[name])
        return replace(owner, kind="table", inputs=(), forward_flop=0.0, stored=0, mask_bytes=0)

    def part(self, stage: int, start: int, stop: int, name: str) -> Part:
        """Return a stage of some layers, without the weights that it shares with others."""
        received = [_received(self.layer(number)) for number in self.crossing(start)]
        own = replace(
            self.model,
            name=name,
            layers=(*received, *map(self.layer, range(start, stop))),
            input_shape=self.input_shape,
            in_blocks=self.model.has_blocks,
            scored=stop == len(self.layers),
        )
        comes, goes = (
            tuple(self.layers[number].name for number in self.crossing(at)) for at in (start, stop)
        )
        part, graph = Part(own, stage, comes, goes), self.graph
        return in_parts(part, graph) if graph and graph.group == "tensor" else part


class Stages:
    """A network cut into stages that end at some of its layers; experts: makes a part's model that of one rank's."""

    def __init__(
        self, network: RankLayers, ends: Sequence[int], experts: Callable[[Model], Model]
    ) -> None:
        self.network, self._experts = network, experts
        self._stops = [bisect_left(network.homes, end) for end in ends]
        self._edges = [*pairwise([0, *self._stops])]
        self._parts: dict[int, Part] = {}
        every = {
            name: tuple(sorted({bisect_right(self._stops, number) for number in holders}))
            for name, holders in network.tied.items()
        }
        self._holders = {name: stages for name, stages in every.items() if len(stages) > 1}

    def __len__(self) -> int:
        """Return the number of stages."""
        return len(self._edges)

    def _shared(self, stage: int) -> dict[str, tuple[int, ...]]:
        """Return the weights that a stage has in common with others, with all stages that have them."""
        return {name: stages for name, stages in self._holders.items() if stage in stages}

    def likeness(self, stage: int) -> Hashable:
        """Return what a stage is, but for names: those of one network that are equal in it have like parts."""
        shared = self._shared(stage)
        own = (stage, *shared.items()) if shared else ()
        return self.network.likeness(*self._edges[stage]), own

    def __getitem__(self, stage: int) -> Part:
        """Return a stage."""
        if stage not in self._parts:
            self._parts[stage] = self._part(stage)
        return self._parts[stage]

    def _part(self, stage: int) -> Part:
        name = self.network.model.name
        name = f"{name} stage {stage}" if len(self) > 1 else name
        part = self.network.part(stage, *self._edges[stage], name)
        part = replace(part, model=self._experts(part.model))
        if not (shared := self._shared(stage)):
            return part
        # Of a layer that is tied to one on another stage, mostly the embedding, it has a table of the weights.
        has = {layer.name for layer in part.model.layers}
        tables = tuple(self.network.table(name) for name in shared if name not in has)
        model = replace(part.model, layers=(*tables, *part.model.layers))
        return replace(part, model=model, shared=shared)


def _received(layer: Layer) -> Layer:
    shape = layer.output_shape
    return Layer(layer.name, "receive", (), shape, shape, stored=prod(shape))
