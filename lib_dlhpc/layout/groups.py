"""Which ranks split what together: tensor fastest, then spatial, data, and pipeline slowest.

Neighbors in rank order share a node, and those who exchange most stand nearest: tensor parallelism
exchanges within every layer, a pipeline only at the ends of its stages (Narayanan et al. 2021, "Efficient
large-scale language model training on GPU clusters", section 3).
"""

from typing import NamedTuple

from lib_dlhpc.spec.experiment import Experiment


class Place(NamedTuple):
    """Where a rank stands in each of the groups that it belongs to; or how large these are."""

    pipeline: int
    data: int
    spatial: int
    tensor: int


def sizes(experiment: Experiment) -> Place:
    """Return how many ranks a group of each kind has; the experiment holds no arrays."""
    strategy = experiment.strategy
    return Place(
        int(strategy.pipeline),
        int(experiment.devices // strategy.replica),
        int(strategy.spatial),
        int(strategy.tensor),
    )


def place(experiment: Experiment, rank: int) -> Place:
    """Return where a rank stands."""
    size, found = sizes(experiment), []
    for extent in reversed(size):
        rank, at = divmod(rank, extent)
        found.append(at)
    return Place(*reversed(found))


def rank_at(experiment: Experiment, at: Place) -> int:
    """Return the rank that stands there."""
    rank = 0
    for extent, here in zip(sizes(experiment), at, strict=True):
        rank = rank * extent + here
    return rank


def group(experiment: Experiment, rank: int, kind: str) -> tuple[int, ...]:
    """Return the ranks that differ from this one only in their place in groups of `kind`, in order."""
    at = place(experiment, rank)
    extent = getattr(sizes(experiment), kind)
    return tuple(rank_at(experiment, at._replace(**{kind: here})) for here in range(extent))


def stride(experiment: Experiment, kind: str) -> int:
    """Return how far apart in rank order neighbors in a group of `kind` are."""
    size, fields = sizes(experiment), Place._fields
    apart = 1
    for inner in fields[fields.index(kind) + 1 :]:
        apart *= getattr(size, inner)
    return apart
