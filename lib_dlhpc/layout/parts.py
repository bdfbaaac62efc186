"""The parts of a network on one rank: one for each of its stages, with all messages as layers.

A network is split in this order: its tokens over the context group, its tensors or its space over their groups
(_split), its layers into stages, and the experts of a stage over replicas (_stages). Ranks with the same place in these
groups have equal parts, so a part is made once and its key is what it depends on (_Cut.keyed).
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout.context import check_context, in_step_replicas, split_context
from lib_dlhpc.layout.experts import check_experts, own_experts
from lib_dlhpc.layout.graph import Graph
from lib_dlhpc.layout.groups import place, shards, sizes
from lib_dlhpc.layout.part import Part
from lib_dlhpc.layout.spatial import split_space
from lib_dlhpc.layout.stage_parts import RankLayers, Stages
from lib_dlhpc.layout.stages import stage_ends
from lib_dlhpc.layout.tensor import split_tensors
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.strategy import DIRECT


def parts(experiment: Experiment, rank: int) -> tuple[Part, ...]:
    """Return the parts of a rank: one, one for each of its chunks, or one of each copy of the network.

    The experiment holds no arrays. Ranks that differ in their place in the data group have equal parts, but for
    which experts they hold, and which tokens.
    Raises SpecError for a model that cannot be split so.
    """
    here = place(experiment, rank)
    replica = here.data % in_step_replicas(experiment)
    stages = stages_of(experiment, here.spatial, here.tensor, replica)
    return tuple(stages[stage] for stage in stages_at(experiment)[here.pipeline])


def chain(experiment: Experiment, spatial: int = 0) -> tuple[tuple[Part, ...], ...]:
    """Return the parts of the ranks of a pipeline, the first of their tensor and data groups, at a place in space.

    Raises SpecError for a model that cannot be split so.
    """
    stages = stages_of(experiment, spatial)
    return tuple(tuple(stages[stage] for stage in held) for held in stages_at(experiment))


def stages_of(
    experiment: Experiment, spatial: int = 0, tensor: int = 0, replica: int = 0
) -> Stages:
    """Return the stages of a network as the ranks at one place of their groups have them; replica: see _Cut.

    Raises SpecError for a model that cannot be split so.
    """
    check_experts(experiment)
    check_context(experiment)
    shards(experiment)
    return _stages(_Cut(experiment, stage_cut(experiment), spatial, tensor, replica).keyed)


def stages_at(experiment: Experiment) -> tuple[tuple[int, ...], ...]:
    """Return which stages are at each place in the pipeline."""
    places, mirrored = sizes(experiment).pipeline, experiment.strategy.mirrored
    return _stages_at(places, int(experiment.strategy.chunks), mirrored)


@lru_cache(maxsize=512)
def _stages_at(places: int, chunks: int, mirrored: bool) -> tuple[tuple[int, ...], ...]:
    if mirrored:
        return tuple((place, places - 1 - place) for place in range(places))
    return tuple(tuple(range(place, places * chunks, places)) for place in range(places))


def home_layers(experiment: Experiment) -> tuple[int, ...]:
    """Return which layer of the network each layer of an unsplit pipeline is of, or serves."""
    return tuple(_network(_Cut(experiment, ()).keyed).homes)


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
    how = (s.precision, s.recompute, s.offload, s.stage_cut)
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

    replica: the place among the replicas that exchange within a pass, for experts and context.
    """

    experiment: Experiment
    ends: tuple[int, ...]
    spatial: int = 0
    tensor: int = 0
    replica: int = 0

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
def _stages(key: Keyed[_Cut]) -> Stages:
    """Return all stages as the ranks at one place of the tensor, spatial, expert and context group have them."""
    cut = key.value
    shared, busiest = int(cut.experiment.strategy.experts), cut.experiment.strategy.expert_imbalance
    how = shared, cut.replica % shared, float(busiest), cut.gathered
    return Stages(
        _network(cut._replace(ends=()).keyed), cut.ends, lambda model: own_experts(model, *how)
    )


@lru_cache(maxsize=64)
def _network(key: Keyed[_Cut]) -> RankLayers:
    return RankLayers(*_split(key.value))


def _split(cut: _Cut) -> tuple[Model, Graph | None]:
    """Return a network with the positions of a rank, and the graph of it where its layers are split."""
    experiment, _, spatial, tensor, replica = cut
    s, context = experiment.strategy, int(experiment.strategy.context)
    model = split_context(experiment.model, context, replica % context, s.context_exchange)
    if s.tensor > 1:
        how = int(s.tensor), tensor, s.split, bool(s.sequence_parallel)
        return model, split_tensors(model, *how)
    return model, split_space(model, int(s.spatial), spatial) if s.spatial > 1 else None
