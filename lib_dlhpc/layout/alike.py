"""Which ranks of a pipeline are alike: their parts are equal but for names, so that one stands for all of them."""

from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

from lib_dlhpc.layout.groups import sizes
from lib_dlhpc.layout.parts import Part, chain
from lib_dlhpc.spec.experiment import Experiment

Key: TypeAlias = tuple[Any, ...]


def alike(experiment: Experiment) -> tuple[int, ...]:
    """Return, for each place in the pipeline, the first place whose parts are like its own at every place in space.

    Raises SpecError for a network that cannot be split so.
    """
    spaces = range(sizes(experiment).spatial)
    return _alike(_Chains(tuple(chain(experiment, space) for space in spaces)))


class _Chains:
    """The parts of the ranks of a pipeline at each place in space as the key of a cache: themselves."""

    def __init__(self, chains: tuple[tuple[tuple[Part, ...], ...], ...]) -> None:
        self.chains = chains
        self.key = tuple(tuple(tuple(map(id, held)) for held in places) for places in chains)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Chains) and self.key == other.key


@lru_cache(maxsize=256)
def _alike(key: _Chains) -> tuple[int, ...]:
    first = dict[Key, int]()
    places = zip(*key.chains, strict=True)
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
