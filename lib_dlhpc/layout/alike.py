"""Which ranks of a pipeline are alike: their parts are equal but for names, so that one stands for all of them."""

from functools import lru_cache
from typing import TypeAlias

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout.groups import sizes
from lib_dlhpc.layout.part import Likeness, Part
from lib_dlhpc.layout.parts import chain
from lib_dlhpc.spec.experiment import Experiment

Chains: TypeAlias = tuple[tuple[tuple[Part, ...], ...], ...]  # place in space, rank, chunk


def alike(experiment: Experiment) -> tuple[int, ...]:
    """Return, for each place in the pipeline, the first place whose parts are like its own at every place in space.

    Raises SpecError for a network that cannot be split so.
    """
    spaces = range(sizes(experiment).spatial)
    chains = tuple(chain(experiment, space) for space in spaces)
    if len(chains[0]) == 1:
        return (0,)
    return _alike(Keyed(chains, *map(id, chains)))


@lru_cache(maxsize=512)
def _alike(key: Keyed[Chains]) -> tuple[int, ...]:
    first = dict[tuple[Likeness, ...], int]()
    places = zip(*key.value, strict=True)
    return tuple(
        first.setdefault(tuple(part.likeness for held in spaces for part in held), place)
        for place, spaces in enumerate(places)
    )
