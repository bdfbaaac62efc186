"""Which ranks of a pipeline are alike: their parts are equal but for names, so that one stands for all of them."""

from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

from lib_dlhpc.layout.groups import Place, rank_at, sizes
from lib_dlhpc.layout.parts import Described, Part, parts
from lib_dlhpc.spec.experiment import Experiment

Key: TypeAlias = tuple[Any, ...]


def alike(experiment: Experiment) -> tuple[int, ...]:
    """Return, for each place in the pipeline, the first place whose parts are like its own at every place in space.

    Raises SpecError for a network that cannot be split so.
    """
    return _alike(Described(experiment))


@lru_cache(maxsize=16)
def _alike(described: Described) -> tuple[int, ...]:
    experiment = described.experiment
    size, first = sizes(experiment), dict[Key, int]()
    found = []
    for place in range(size.pipeline):
        held = (
            part
            for space in range(size.spatial)
            for part in parts(experiment, rank_at(experiment, Place(place, 0, space, 0)))
        )
        found.append(first.setdefault(tuple(map(_key, held)), place))
    return tuple(found)


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
