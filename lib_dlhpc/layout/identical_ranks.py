"""Which ranks of a pipeline are alike: their parts are equal but for names, so that one stands for all of them."""

from functools import lru_cache
from typing import TypeAlias

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout.part import Part
from lib_dlhpc.layout.parts import stages_at, stages_of
from lib_dlhpc.layout.stage_parts import Stages
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

Chain: TypeAlias = tuple[tuple[Part, ...], ...]  # rank, chunk


def represented(experiment: Experiment, spatial: int = 0) -> Chain:
    """Return the same as `chain`, with the same object for ranks whose parts are alike.

    Parts of another pipeline through the same network may stand for theirs, so names differ. Raises as `chain`.
    """
    stages, network, some = stages_of(experiment, spatial), experiment.model, stages_at(experiment)
    return _represented(Keyed((stages, network), id(stages), id(network)), some)


def representative(network: Model, part: Part) -> Part:
    """Return the first part of a network met that is like this one, in whatever pipeline."""
    return _representative(Keyed((part, network), id(part), id(network)))


@lru_cache(maxsize=8192)
def _representative(key: Keyed[tuple[Part, Model]]) -> Part:
    part, network = key.value
    return _first_part(Keyed((part, network), id(network), part.likeness))


@lru_cache(maxsize=8192)
def _first_part(key: Keyed[tuple[Part, Model]]) -> Part:
    return key.value[0]


@lru_cache(maxsize=512)
def _represented(key: Keyed[tuple[Stages, Model]], places: tuple[tuple[int, ...], ...]) -> Chain:
    stages, network = key.value
    like = [stages.likeness(stage) for stage in range(len(stages))]
    of = id(stages.network), id(network)
    return tuple(
        _held(Keyed((*key.value, place), *of, *[like[stage] for stage in place]))
        for place in places
    )


@lru_cache(maxsize=8192)
def _held(key: Keyed[tuple[Stages, Model, tuple[int, ...]]]) -> tuple[Part, ...]:
    """Return the parts of a rank, by the likeness of its stages."""
    stages, network, some = key.value
    held = tuple(stages[stage] for stage in some)
    like = tuple(representative(network, part) for part in held)
    return _first(Keyed((held, like), *map(id, like)))


@lru_cache(maxsize=8192)
def _first(key: Keyed[tuple[tuple[Part, ...], tuple[Part, ...]]]) -> tuple[Part, ...]:
    return key.value[0]
