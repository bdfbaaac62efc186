"""Which ranks of a pipeline are alike: their parts are equal but for names, so that one stands for all of them."""

from functools import lru_cache
from typing import TypeAlias

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout.part import Part
from lib_dlhpc.layout.parts import chain
from lib_dlhpc.spec.experiment import Experiment
from lib_dlhpc.spec.model import Model

Chain: TypeAlias = tuple[tuple[Part, ...], ...]  # rank, chunk


def represented(experiment: Experiment, spatial: int = 0) -> Chain:
    """Return the same as `chain`, with the same object for ranks whose parts are alike.

    Parts of another pipeline through the same network may stand for theirs, so names differ. Raises as `chain`.
    """
    every, network = chain(experiment, spatial), experiment.model
    return _represented(Keyed((every, network), id(every), id(network)))


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
def _represented(key: Keyed[tuple[Chain, Model]]) -> Chain:
    every, network = key.value
    each = ((held, tuple(representative(network, part) for part in held)) for held in every)
    return tuple(_first(Keyed(one, *map(id, one[1]))) for one in each)


@lru_cache(maxsize=8192)
def _first(key: Keyed[tuple[tuple[Part, ...], tuple[Part, ...]]]) -> tuple[Part, ...]:
    return key.value[0]
