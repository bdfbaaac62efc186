"""The parts of a network on one rank: one for each of its stages, with all messages as layers."""

from bisect import bisect_left
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout.context import check_context, in_step_replicas, split_context
from lib_dlhpc.layout.experts import check_experts, own_experts
from lib_dlhpc.layout.graph import Graph
from lib_dlhpc.layout.groups import place, shards, sizes
from lib_dlhpc.layout.part import Part
from lib_dlhpc.layout.sent_parts import in_parts
from lib_dlhpc.layout.spatial import split_space
from lib_dlhpc.layout.stages import stage_ends
from lib_dlhpc.layout.tensor import split_tensors
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Layer, Model
from lib_dlhpc.spec.strategy import DIRECT


def parts(experiment: Experiment, rank: int) -> tuple[Part, ...]:
    """Return the parts of a rank: one, one for each of its chunks, or one of each copy of the network.

    The experiment holds no arrays. Ranks that differ in their place in the data group have equal parts, but for
    which experts they hold, and which tokens.
    Raises SpecError for a model that cannot be split so.
    """
    at, size = place(experiment, rank), sizes(experiment)
    stages = size.pipeline * int(experiment.strategy.chunks)
    check_experts(experiment)
    check_context(experiment)
    shards(experiment)
    apart = at.data % in_step_replicas(experiment)
    every = _stages(_Cut(experiment, stage_cut(experiment), at.spatial, at.tensor, apart).keyed)
    mirror = (stages - 1 - at.pipeline,) if experiment.strategy.mirrored else ()
    return tuple(every[stage] for stage in (*range(at.pipeline, stages, size.pipeline), *mirror))


def chain(experiment: Experiment, spatial: int = 0) -> tuple[tuple[Part, ...], ...]:
    """Return the parts of the ranks of a pipeline, the first of their tensor and data groups, at a place in space.

    Raises SpecError for a model that cannot be split so.
    """
    check_experts(experiment)
    check_context(experiment)
    shards(experiment)
    every = _stages(_Cut(experiment, stage_cut(experiment), spatial).keyed)
    mirrored = experiment.strategy.mirrored
    return _chain(Keyed(every, id(every)), sizes(experiment).pipeline, mirrored)


def home_layers(experiment: Experiment, spatial: int = 0) -> tuple[int, ...]:
    """Return which layer of the network each layer of an unsplit pipeline is of, or serves; spatial: as in `chain`."""
    model, graph = _split(_Cut(experiment, (), spatial))
    return tuple(range(len(model.layers))) if graph is None else tuple(graph.homes)


@lru_cache(maxsize=512)
def _chain(
    every: Keyed[tuple[Part, ...]], places: int, mirrored: bool
) -> tuple[tuple[Part, ...], ...]:
    """Return the parts of each place in the pipeline: the same object for the same stages."""
    if mirrored:
        return tuple(zip(every.value, every.value[::-1], strict=True))
    return tuple(every.value[place::places] for place in range(places))


class Cuts:
    """Where the stages of layouts end that differ in their microbatches and schedule; `first` is one of them."""

    def __init__(self, first: Experiment) -> None:
        self.first = first
        self._known: dict[tuple[int, str], tuple[int, ...]] = {}

    def of(self, many: int, schedule: str) -> tuple[int, ...]:
        """Return the ends as `stage_ends` does; raises SpecError as that does."""
        if (many, schedule) not in self._known:
            strategy = replace(self.first.strategy, microbatches=many, schedule=schedule)
            self._known[many, schedule] = stage_ends(replace(self.first, strategy=strategy))
        return self._known[many, schedule]


def stage_cuts(experiment: Experiment) -> Cuts:
    """Return where stages end, with any schedule; experiments whose stages end at the same places have the same."""
    s, device = experiment.strategy, experiment.machine.device
    numbers = (s.tensor, s.pipeline, s.spatial, s.context, s.chunks, s.batch)
    room = float(device.memory - device.reserved_memory) if s.pipeline > 1 else 0.0
    how = (s.precision, s.recompute, s.offload)
    return _cuts(Keyed(experiment, id(experiment.model), *map(int, numbers), *how, room))


@lru_cache(maxsize=2048)
def _cuts(key: Keyed[Experiment]) -> Cuts:
    return Cuts(key.value)


def stage_cut(experiment: Experiment) -> tuple[int, ...]:
    """Return where the stages of a scalar experiment end, as `stage_ends`."""
    s = experiment.strategy
    return stage_cuts(experiment).of(int(s.microbatches), s.schedule)


class _Cut(NamedTuple):
    """A network cut into stages, as the ranks at one place of the tensor and the spatial group have them.

    apart: the place among the replicas that exchange within a pass, for experts and context.
    """

    experiment: Experiment
    ends: tuple[int, ...]
    spatial: int = 0
    tensor: int = 0
    apart: int = 0

    @property
    def keyed(self) -> "Keyed[_Cut]":
        """The cut, with what its parts depend on as the key."""
        s = self.experiment.strategy
        return Keyed(
            self,
            *(id(self.experiment.model), *self[1:]),
            *map(int, (s.tensor, s.spatial, s.experts, s.context)),
            (s.split, bool(s.sequence_parallel)) if s.tensor > 1 else (),
            *(s.context_exchange, float(s.expert_imbalance), self.gathered),
        )

    @property
    def gathered(self) -> bool:
        """Whether positions travel to experts as one copy a device, which the exchange makes."""
        return self.experiment.strategy.expert_exchange != DIRECT


@lru_cache(maxsize=512)
def _stages(key: Keyed[_Cut]) -> tuple[Part, ...]:
    """Return all stages as the ranks at one place of the tensor, spatial, expert and context group have them."""
    experiment, ends, _, _, apart = key.value
    strategy, (model, graph) = experiment.strategy, _split(key.value)
    layers, homes, input_shape = model.layers, tuple(range(len(model.layers))), model.input_shape
    if graph is not None:
        layers, homes = tuple(graph.layers), tuple(graph.homes)
        input_shape = graph.local_shape(graph.held["input"])
    found, start = [], 0
    stops = [bisect_left(homes, end) for end in ends]
    crossing = _crossing(layers, stops)
    for stage, stop in enumerate(stops):
        own = replace(
            model,
            name=f"{model.name} stage {stage}" if len(stops) > 1 else model.name,
            layers=(*map(_received, crossing[start]), *layers[start:stop]),
            input_shape=input_shape,
            in_blocks=model.has_blocks,
            scored=stage == len(stops) - 1,
        )
        comes, goes = (tuple(each.name for each in crossing[at]) for at in (start, stop))
        part = Part(own, stage, comes, goes)
        found.append(in_parts(part, graph) if graph and graph.group == "tensor" else part)
        start = stop
    if any(layer.traits.tensor == "experts" for layer in model.layers):
        shared, busiest = int(strategy.experts), float(strategy.expert_imbalance)
        how = shared, apart % shared, busiest, key.value.gathered
        found = [replace(part, model=own_experts(part.model, *how)) for part in found]
    return _with_tables(found, layers)


def _split(cut: _Cut) -> tuple[Model, Graph | None]:
    """Return a network with the positions of a rank, and the graph of it where its layers are split."""
    experiment, _, spatial, tensor, apart = cut
    s, context = experiment.strategy, int(experiment.strategy.context)
    model = split_context(experiment.model, context, apart % context, s.context_exchange)
    if s.tensor > 1:
        how = int(s.tensor), tensor, s.split, bool(s.sequence_parallel)
        return model, split_tensors(model, *how)
    return model, split_space(model, int(s.spatial), spatial) if s.spatial > 1 else None


def _crossing(layers: tuple[Layer, ...], places: list[int]) -> dict[int, tuple[Layer, ...]]:
    """Return for 0 and each of some places the layers before it whose outputs are read from there on."""
    last = {name: number for number, layer in enumerate(layers) for name in layer.inputs}
    found: dict[int, tuple[Layer, ...]] = {0: ()}
    start, alive = 0, tuple[Layer, ...]()
    for stop in places:
        some = (*alive, *layers[start:stop])
        start, alive = stop, tuple(each for each in some if last.get(each.name, -1) >= stop)
        found[stop] = alive
    return found


def _received(layer: Layer) -> Layer:
    shape = layer.output_shape
    return Layer(layer.name, "receive", (), shape, shape, stored=prod(shape))


def _with_tables(found: list[Part], layers: tuple[Layer, ...]) -> tuple[Part, ...]:
    """Give stages of which a layer is tied to one on another stage, mostly the embedding, a table of its weights."""
    of = {layer.name: layer.attributes["tied"] for layer in layers if layer.attributes.get("tied")}
    if not of:
        return tuple(found)
    names = {*of.values()}
    owners = {layer.name: layer for layer in layers if layer.name in names}
    of = {name: owner for name, owner in of.items() if owner in owners}
    tied: dict[str, set[int]] = {}
    for part in found:
        for layer in part.model.layers:
            if layer.name in owners and not layer.traits.message:  # not received under its name
                tied.setdefault(layer.name, set()).add(part.stage)
            if layer.name in of and "tied" in layer.attributes:
                tied.setdefault(of[layer.name], set()).add(part.stage)
    result = []
    for part in found:
        shared = {
            name: tuple(sorted(stages))
            for name, stages in tied.items()
            if part.stage in stages and len(stages) > 1
        }
        if shared:
            has = {layer.name for layer in part.model.layers}
            tables = tuple(_table(owners[name]) for name in shared if name not in has)
            model = replace(part.model, layers=(*tables, *part.model.layers))
            part = replace(part, model=model, shared=shared)
        result.append(part)
    return tuple(result)


def _table(owner: Layer) -> Layer:
    return replace(owner, kind="table", inputs=(), forward_flop=0.0, stored=0, mask_bytes=0)
