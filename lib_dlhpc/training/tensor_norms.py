"""Full tensors from a rank's parts: LARS and LAMB need their norms, Muon the tensors."""

from collections.abc import Sequence

import numpy as np

from lib_dlhpc.layers.base.saved import Array
from lib_dlhpc.spec.model import Layer
from lib_dlhpc.training.collectives import allreduce_of
from lib_dlhpc.training.full_tensors import expert_tensors, parts_by_name
from lib_dlhpc.training.groups import Groups
from lib_dlhpc.training.sharding import Sharding
from lib_dlhpc.training.weights import Parameter


def whole_squares(
    groups: Groups, layers: Sequence[Layer], sharded: bool, squares: Array, names: list[str]
) -> Array:
    """Return the sums over the groups that partition each tensor; all their ranks call this.

    layers: of this rank. sharded: over replicas, too (ZeRO). squares: of this rank's part of each tensor.
    """
    theirs = expert_tensors(layers)
    over = ((groups.shards, {*names} - theirs), (groups.alike, theirs)) if sharded else ()
    # A tensor group with more ranks than experts holds them alike.
    alike = expert_tensors(layer for layer in layers if "served" not in layer.attributes)
    for comm, split in (
        *over,
        (groups.tensor, parts_by_name(layers).keys() - alike),
        (groups.experts, theirs),
    ):
        if comm.size > 1:
            some = np.array([name in split for name in names], np.bool_)
            total = allreduce_of(comm)(np.where(some, squares, 0))
            squares = np.where(some, total, squares).astype(squares.dtype)
    return squares


def whole_tensor(
    sharding: Sharding, parameters: Sequence[Parameter], part: Parameter, shard: Array
) -> tuple[Array, int]:
    """Return a full tensor, flat, and where this rank's part of it begins; all ranks that share it call this.

    part: of the tensor, in this rank's shard; own: its values.
    """
    (full,) = (p for p in parameters if p.name == part.name)
    return sharding.whole(shard, full.start, full.stop)
