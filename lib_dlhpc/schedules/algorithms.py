"""All algorithms by name, and `schedule`, which binds one to a number of ranks and elements."""

import inspect
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from lib_dlhpc.errors import SpecError, check_counts, listed
from lib_dlhpc.schedules.algorithm import Algorithm
from lib_dlhpc.schedules.rounds import Rounds, Schedule
from lib_dlhpc.spec.strategy import ALLREDUCES


class _Records(Mapping[str, Algorithm]):
    """Records by name; a file is imported when one of its records is first asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = places

    def __getitem__(self, name: str) -> Algorithm:
        return _record(self.places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


@cache
def _record(place: str) -> Algorithm:
    module, _, name = place.partition(":")
    record: Algorithm = getattr(import_module(module), name)
    return record


def _in(file: str, *names: str) -> dict[str, str]:
    """Return the places of records of a file, each a constant."""
    return {name: f"lib_dlhpc.schedules.{file}:{name.upper()}" for name in names}


_OTHERS = {  # allreduces that strategy.allreduce may not name, or names as those of switches
    **_in("double_tree", "double_binary_tree"),
    **_in("in_network", "sharp", "nvls", "nvls_sharp"),
}
COLLECTIVES: dict[str, Mapping[str, Algorithm]] = {
    "allreduce": _Records(ChainMap(_OTHERS, ALLREDUCES)),
    "broadcast": _Records(
        _in("trees", "binomial_broadcast", "van_de_geijn_broadcast", "chain_broadcast")
    ),
    "reduce": _Records(_in("trees", "binomial_reduce")),
    "reduce_scatter": _Records(
        _in("rings", "ring_reduce_scatter")
        | _in("levels", "hierarchical_reduce_scatter", "halving_reduce_scatter")
    ),
    "allgather": _Records(
        _in("rings", "ring_allgather")
        | _in("levels", "hierarchical_allgather", "doubling_allgather")
        | _in("exchange", "bruck_allgather")
    ),
    "all_to_all": _Records(
        _in("all_to_all", "pairwise_all_to_all", "hierarchical_all_to_all", "bruck_all_to_all")
    ),
    "halo": _Records(_in("exchange", "halo_exchange")),
}
ALGORITHMS: Mapping[str, Algorithm] = ChainMap(*reversed(COLLECTIVES.values()))  # type: ignore[arg-type]


def schedule(
    algorithm: str | Callable[..., Rounds],
    ranks: int,
    elements: int,
    goal: str = "",
    **options: Any,
) -> Schedule:
    """Return the Schedule of `algorithm`, a name in ALGORITHMS or your own `def f(ranks, elements)`.

    ranks: at least 1. elements: of the buffer on each rank, at least 0. goal: of your own function,
    a key of COLLECTIVES (default: allreduce). options: other options of the algorithm, such as
    root, node_size, segments. Raises SpecError, which names the legal values.
    """
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            head = f"algorithm = {algorithm!r}:"
            raise SpecError(listed(head, algorithm, ALGORITHMS, "expected a function or one of"))
        record = ALGORITHMS[algorithm]
        name, function, legal = algorithm, record.rounds, record.legal_options
        goal = goal or record.goal
    else:
        name, function = getattr(algorithm, "__name__", "algorithm"), algorithm
        legal, goal = tuple(inspect.signature(function).parameters)[2:], goal or "allreduce"
    if goal not in COLLECTIVES:
        raise SpecError(listed(f"goal = {goal!r}:", goal, COLLECTIVES, "expected one of"))
    check_counts(ranks=ranks)
    check_counts(0, elements=elements)
    _check_options(name, legal, options, int(ranks))
    p, n = int(ranks), int(elements)
    if options:
        # A wrong value raises here, not at first use.
        next(iter(function(p, n, **options)), None)
    return Schedule(
        name, p, n, lambda: function(p, n, **options), goal, MappingProxyType(dict(options))
    )


def _check_options(name: str, legal: tuple[str, ...], options: dict[str, Any], ranks: int) -> None:
    for option, value in options.items():
        if option not in legal:
            head = f"{name}: no option {option!r};"
            raise SpecError(
                listed(head, option, legal, "expected one of")
                if legal
                else f"{head} it takes no options."
            )
        if option == "root" and not (isinstance(value, int | np.integer) and 0 <= value < ranks):
            raise SpecError(f"root = {value!r}: expected a rank, 0 to {ranks - 1}.")
