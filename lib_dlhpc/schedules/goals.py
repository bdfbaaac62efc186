"""Goals: precondition and postcondition of each collective on each rank."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.arrays import Ints
from lib_dlhpc.errors import SpecError
from lib_dlhpc.schedules.exchange import grid_shape, neighbors
from lib_dlhpc.schedules.levels import shards
from lib_dlhpc.schedules.rings import cuts

ALL = -2  # the contribution of every rank, once
ANY = -3  # unspecified
NOTHING = -1  # no initial data


class Goal(NamedTuple):
    """A goal for the parts of the buffer between `cuts`: arrays of shape (ranks, parts)."""

    cuts: Ints
    begins: NDArray[np.bool_]  # whether the rank has initial data there
    wanted: Ints  # a rank (only its contribution), ALL or ANY


def _goal(cut: Ints, begins: Any, wanted: Any, ranks: int) -> Goal:
    shape = (ranks, len(cut) - 1)
    return Goal(cut, np.broadcast_to(begins, shape), np.broadcast_to(wanted, shape))


def _allreduce(ranks: int, elements: int, options: Mapping[str, Any]) -> Goal:
    return _goal(cuts(elements, 1), True, ALL, ranks)


def _reduce(ranks: int, elements: int, options: Mapping[str, Any]) -> Goal:
    return _goal(cuts(elements, 1), True, np.where(_is_root(ranks, options), ALL, ANY), ranks)


def _broadcast(ranks: int, elements: int, options: Mapping[str, Any]) -> Goal:
    root = _is_root(ranks, options)
    return _goal(cuts(elements, 1), root, int(root.argmax()), ranks)


def _reduce_scatter(ranks: int, elements: int, options: Mapping[str, Any]) -> Goal:
    cut, owner = shards(ranks, elements, options.get("node_size", 1))
    mine = owner == np.arange(ranks)[:, None]
    return _goal(cut, True, np.where(mine, ALL, ANY), ranks)


def _allgather(ranks: int, elements: int, options: Mapping[str, Any]) -> Goal:
    cut, owner = shards(ranks, elements, options.get("node_size", 1))
    return _goal(cut, owner == np.arange(ranks)[:, None], owner, ranks)


def _all_to_all(ranks: int, elements: int, options: Mapping[str, Any]) -> Goal:
    source, target = np.divmod(np.arange(ranks**2), ranks)
    rank = np.arange(ranks)[:, None]
    wanted = np.where(rank == target, source, ANY)
    return _goal(cuts(elements, ranks**2), rank == source, wanted, ranks)


def _halo(ranks: int, elements: int, options: Mapping[str, Any]) -> Goal:
    shape = grid_shape(ranks, options.get("dimensions", 2), options.get("grid", ()))
    faces = 2 * len(shape)
    wanted = np.repeat(np.arange(ranks)[:, None], faces, axis=1)
    for face in range(faces):
        source, target = neighbors(shape, face, options.get("periodic", False))
        wanted[target, face] = source
    return _goal(cuts(elements, faces), True, wanted, ranks)


GOALS: dict[str, Callable[[int, int, Mapping[str, Any]], Goal]] = {
    "allreduce": _allreduce,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "allgather": _allgather,
    "all_to_all": _all_to_all,
    "halo": _halo,
}


def _is_root(ranks: int, options: Mapping[str, Any]) -> NDArray[np.bool_]:
    root = options.get("root", 0)
    if not 0 <= root < ranks:
        raise SpecError(f"root = {root!r}: expected a rank, 0 to {ranks - 1}.")
    is_root: NDArray[np.bool_] = np.arange(ranks)[:, None] == root
    return is_root
