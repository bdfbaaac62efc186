"""The groups of ranks: tensor varies fastest, then spatial, data, and pipeline slowest.

Neighbors in rank order share a node, and the groups that communicate most are the closest: tensor parallelism
communicates within every layer, a pipeline only at the ends of its stages (Narayanan et al. 2021, "Efficient
large-scale language model training on GPU clusters", section 3). Context ranks are neighbors in the data group, as are
those that share experts: Megatron-LM's default order, tp-cp-ep-dp-pp (megatron/core/parallel_state.py).
"""

from dataclasses import replace
from typing import NamedTuple

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.experiment import Experiment


class Place(NamedTuple):
    """The index of a rank in each of its groups; or the sizes of these groups."""

    pipeline: int
    data: int
    spatial: int
    tensor: int


def folded(experiment: Experiment) -> Experiment:
    """Return the experiment with all chunks as one, and backward passes in one part, where there is no pipeline."""
    strategy = experiment.strategy
    if strategy.pipeline > 1 or (strategy.chunks == 1 and not strategy.splits_backward):
        return experiment
    return replace(experiment, strategy=replace(strategy, chunks=1, schedule="1f1b"))


def sizes(experiment: Experiment) -> Place:
    """Return the size of each kind of group; the experiment holds no arrays."""
    strategy = experiment.strategy
    return Place(
        int(strategy.pipeline),
        int(experiment.devices // strategy.holders),
        int(strategy.spatial),
        int(strategy.tensor),
    )


def shards(experiment: Experiment) -> int:
    """Return over how many replicas ZeRO shards the state, 1 without it; the experiment holds no arrays.

    Raises SpecError unless that divides the replicas.
    """
    strategy, replicas = experiment.strategy, sizes(experiment).data
    if not strategy.zero:
        return 1
    many = int(strategy.shards) or replicas
    if replicas % many:
        raise SpecError(
            f"strategy.shards = {many}: it must divide the {replicas} replicas, or be 0, which shards over all."
        )
    return many


def place(experiment: Experiment, rank: int) -> Place:
    """Return the place of a rank."""
    size, found = sizes(experiment), []
    for extent in reversed(size):
        rank, at = divmod(rank, extent)
        found.append(at)
    return Place(*reversed(found))


def rank_at(experiment: Experiment, at: Place) -> int:
    """Return the rank at a place."""
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
    """Return the distance in rank order between neighbors in a group of `kind`."""
    size, fields = sizes(experiment), Place._fields
    apart = 1
    for inner in fields[fields.index(kind) + 1 :]:
        apart *= getattr(size, inner)
    return apart
