"""All algorithms by name, and `schedule`, which binds one to a number of ranks and elements."""

import inspect
from types import MappingProxyType
from typing import Any

import numpy as np

from lib_dlhpc.schedules.double_tree import double_binary_tree
from lib_dlhpc.schedules.doubling import rabenseifner, recursive_doubling
from lib_dlhpc.schedules.exchange import (
    bruck_allgather,
    halo_exchange,
    pairwise_all_to_all,
    parameter_server,
)
from lib_dlhpc.schedules.hierarchy import hierarchical, torus_2d
from lib_dlhpc.schedules.rings import ring, ring_allgather, ring_reduce_scatter
from lib_dlhpc.schedules.rounds import Algorithm, Schedule
from lib_dlhpc.schedules.trees import (
    binomial,
    binomial_broadcast,
    binomial_reduce,
    chain_broadcast,
    van_de_geijn_broadcast,
)
from lib_dlhpc.spec.errors import SpecError, suggest

COLLECTIVES: dict[str, dict[str, Algorithm]] = {
    "allreduce": {
        "ring": ring,
        "recursive_doubling": recursive_doubling,
        "rabenseifner": rabenseifner,
        "binomial": binomial,
        "double_binary_tree": double_binary_tree,
        "hierarchical": hierarchical,
        "torus_2d": torus_2d,
        "parameter_server": parameter_server,
    },
    "broadcast": {
        "binomial_broadcast": binomial_broadcast,
        "van_de_geijn_broadcast": van_de_geijn_broadcast,
        "chain_broadcast": chain_broadcast,
    },
    "reduce": {"binomial_reduce": binomial_reduce},
    "reduce_scatter": {"ring_reduce_scatter": ring_reduce_scatter},
    "allgather": {"ring_allgather": ring_allgather, "bruck_allgather": bruck_allgather},
    "all_to_all": {"pairwise_all_to_all": pairwise_all_to_all},
    "halo": {"halo_exchange": halo_exchange},
}
ALGORITHMS: dict[str, Algorithm] = {
    name: function for family in COLLECTIVES.values() for name, function in family.items()
}
GOALS = {name: goal for goal, family in COLLECTIVES.items() for name in family}


def schedule(
    algorithm: str | Algorithm, ranks: int, elements: int, goal: str = "", **options: Any
) -> Schedule:
    """Return the Schedule of `algorithm`, a name in ALGORITHMS or your own `def f(ranks, elements)`.

    ranks: at least 1. elements: of the buffer each rank has, at least 0. goal: what your own is for,
    a key of COLLECTIVES (default: allreduce). options: whatever else the algorithm takes, such as
    root, node_size, segments. Raises SpecError for what is not legal, with what is.
    """
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            raise SpecError(
                f"algorithm = {algorithm!r}: expected one of {', '.join(ALGORITHMS)}"
                f" or a function.{suggest(algorithm, ALGORITHMS)}"
            )
        name, function = algorithm, ALGORITHMS[algorithm]
        goal = goal or GOALS[name]
    else:
        name, function = getattr(algorithm, "__name__", "algorithm"), algorithm
        goal = goal or "allreduce"
    if goal not in COLLECTIVES:
        raise SpecError(
            f"goal = {goal!r}: expected one of {', '.join(COLLECTIVES)}.{suggest(goal, COLLECTIVES)}"
        )
    for field, value, least in (("ranks", ranks, 1), ("elements", elements, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise SpecError(f"{field} = {value!r}: expected a whole number, at least {least}.")
    _check_options(name, function, options, int(ranks))
    p, n = int(ranks), int(elements)
    if options:
        next(
            iter(function(p, n, **options)), None
        )  # a wrong value shows here, not at the first reader
    return Schedule(
        name, p, n, lambda: function(p, n, **options), goal, MappingProxyType(dict(options))
    )


def _check_options(name: str, function: Algorithm, options: dict[str, Any], ranks: int) -> None:
    legal = list(inspect.signature(function).parameters)[2:]
    for option, value in options.items():
        if option not in legal:
            known = f"expected one of {', '.join(legal)}" if legal else "it takes no options"
            raise SpecError(f"{name}: no option {option!r}; {known}.{suggest(option, legal)}")
        if option == "root" and not (isinstance(value, int | np.integer) and 0 <= value < ranks):
            raise SpecError(f"root = {value!r}: expected a rank, 0 to {ranks - 1}.")
