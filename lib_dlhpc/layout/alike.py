"""Which ranks of a pipeline are alike: their parts are equal but for names, so that one stands for all of them."""

from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

from lib_dlhpc.keyed import Keyed
from lib_dlhpc.layout.groups import sizes
from lib_dlhpc.layout.parts import Part, chain
from lib_dlhpc.spec.experiment import Experiment

Chains: TypeAlias = tuple[tuple[tuple[Part, ...], ...], ...]  # place in space, rank, chunk
Key: TypeAlias = tuple[Any, ...]


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
    first = dict[Key, int]()
    places = zip(*key.value, strict=True)
    return tuple(
        first.setdefault(tuple(_key(part) for held in spaces for part in held), place)
        for place, spaces in enumerate(places)
    )


def _key(part: Part) -> Key:
    """Return what a part is, but for the names of its layers; parts that share a table are like no other."""
    layers = part.model.layers
    at = {layer.name: number for number, layer in enumerate(layers)}
    prefixes = [layer.name.rpartition(".")[0] for layer in layers]
    blocks = [one != other for one, other in pairwise(prefixes)]
    return (
        tuple(layer.likeness for layer in layers),
        tuple(
            number - at[name] if name in at else name
            for number, layer in enumerate(layers)
            for name in layer.inputs
        ),
        tuple(blocks),
        tuple(at[name] for name in part.sends),
        part.model.input_shape,
        part.stage if part.shared else -1,
    )
